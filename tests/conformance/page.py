"""Writes docs/conformance.md: what is declared, and what the recorded runs say.

`make conformance` writes all of it, from the runs in `build/conformance` (`recording.py`).
`python -m tests.conformance.page` writes anew what is declared, and keeps the results.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from pump.capabilities import Capabilities

from .claims import ROOT
from .gateways import EVERY_GATEWAY
from .operations import matrix
from .recording import FOLDER, Record, records
from .results import runs, table
from .titles import INSTEAD, MEASURED_WAITS

PAGE = ROOT / "docs" / "conformance.md"
NAMED = [(name, gateway.capabilities) for name, gateway in EVERY_GATEWAY.items()]
PACE = (
    "is_durable",
    "is_shared",
    "spans_machines",
    "receive_batch",
    "settle_batch",
    "settle_linger_s",
    "max_settle_calls",
    "max_pollers",
)
"""What is no operation: where a gateway can be used, and how the pump asks it."""


_INTRODUCTION = """\
# Conformance

What each gateway can do, and what became of the tests of each requirement, gateway by gateway.
This page is written by `make conformance`, from what the runs of the tests have written down.

Tests in `pump/testing/contract` run against every gateway; a test that needs a
capability the gateway does not declare is left out by that capability, never by name.

## Gateways

*Native*: the provider does it, or the gateway's own store where there is no other. *Emulated*: the
gateway makes it up, by a detour that its page describes. *No* says what is raised, or what happens
instead. The table is made from the capabilities that the gateways declare; the contract suite holds
them to what they declare, and `tests/conformance/test_matrix.py` to the errors.

"""
_REMARKS = """
On SQS, order, groups, sessions and de-duplication are those of FIFO queues, and the provider
chooses the session (R42). S3 has two layouts, chosen for each queue. Service Bus is tested against
a peer of ours that the real SDK talks to, not against Azure.

### What the pump goes by

"""
_INSTEAD = """
## Held otherwise

Where a source asks for a mechanism, and its purpose is held by another.

| | asked for | its purpose | what replaces it | proved by |
|---|---|---|---|---|
"""
_WAITS = """
## How exactly an empty receive waits

R4 asks for 100 ms. Measured on each real server, with waits of 0, 0.05, 0.75 and 1.25 s, three
times each, over loopback on a machine of two cores that others kept busy (a load of 8 to 12);
`tests/conformance/test_waits.py` measures again.

| server | late by |
|---|---|
"""
RESULTS = "## Requirements"
_REQUIREMENTS = f"""
{RESULTS}

*Passed* and how many tests: those that name the requirement, and are about the gateway. *Emulated*:
they passed, and the gateway makes it up. *Raises*: asking for it is refused by that error, which a
test holds; tests that passed beside it are of the parts that can be had. *Carried, not acted on*:
the message keeps what it asks for. *Left out*: all of the tests need a capability that the gateway
does not declare. *Not run*: there are tests, and none of the runs below ran them. A dash: nothing
of the gateway's own is needed. Under *pump* is what holds whatever the gateway is; *`pump local`*
is the SQS server. `python -m tests.conformance.claims R5` prints the tests of R5.

"""


def render(results: Sequence[str]) -> str:
    """The whole page."""
    return "\n".join([*declared(), *results, ""])


def declared() -> list[str]:
    """What comes before the results, and needs no run."""
    return [
        *_INTRODUCTION.splitlines(),
        *matrix(NAMED),
        *_REMARKS.splitlines(),
        *_declared(),
        *_INSTEAD.splitlines(),
        *_held_otherwise(),
        *_WAITS.splitlines(),
        *(f"| {server} | {late} |" for server, late in MEASURED_WAITS),
        *_REQUIREMENTS.splitlines(),
    ]


def results_of(found: Sequence[Record]) -> list[str]:
    """What comes after them."""
    return [*runs(found), "", *table(found)]


def written_results(page: str) -> list[str]:
    """The results that a page has already."""
    _, _, rest = page.partition(RESULTS)
    lines = rest.splitlines()
    first = next((at for at, line in enumerate(lines) if line.startswith("| ")), len(lines))
    return lines[first:]


def _held_otherwise() -> Iterator[str]:
    for each in INSTEAD:
        tests = "<br>".join(f"`{test}`" for test in each.tests)
        cells = (each.number, each.asked, each.purpose, each.replaced_by, tests)
        yield f"| {' | '.join(cells)} |"


def _declared() -> Iterator[str]:
    yield f"| capability | {' | '.join(name for name, _ in NAMED)} |"
    yield f"|---|{'---|' * len(NAMED)}"
    for name in PACE:
        yield f"| `{name}` | {' | '.join(_cell(each, name) for _, each in NAMED)} |"


def _cell(capabilities: Capabilities, name: str) -> str:
    value = getattr(capabilities, name)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}"


def main(*arguments: str) -> None:
    """Write the page; `--recorded` takes the results from the runs that were recorded."""
    if "--recorded" in arguments:
        results = results_of(records(FOLDER))
    else:
        results = written_results(PAGE.read_text())
    PAGE.write_text(render(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
