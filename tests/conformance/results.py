"""The table of requirements: what the recorded runs say of each, gateway by gateway."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import attrs

from pump.capabilities import Capabilities
from pump.errors import UnsupportedOperation

from .claims import claims
from .columns import COLUMNS, may_be_for, of_folder
from .gateways import EVERY_GATEWAY
from .operations import OPERATIONS, Operation
from .recording import ItemResult, Record
from .titles import TITLES

HELD_BY = {
    "R20": "has_native_redrive",
    "R36": "ordering_modes",
    "R37": "has_strict_order",
    "R38": "has_groups",
    "R39": "has_deduplication",
    "R40": "has_sessions",
    "R41": "has_sessions",
    "R42": "has_sessions",
    "T7": "has_strict_order",
}
"""The capability that a requirement is about: where it is emulated, so is the requirement."""
_REFUSED = "test_when_an_operation_is_not_to_be_had_then_the_error_says_what_and_why"
NOTHING, NOT_RUN, LEFT_OUT = "–", "not run", "left out"
CELL = re.compile(
    r"–|not run|left out|(passed|emulated) \d+|\*\*failed \d+\*\* of \d+"
    r"|raises `\w+`(, passed \d+)?|(carried, not acted on)(, passed \d+)?"
)
"""What a cell may say."""
_BY_FIELD: dict[str, Operation] = {each.field: each for each in OPERATIONS}


@attrs.frozen
class Cell:
    """A requirement at a gateway."""

    number: str
    column: str

    @property
    def capabilities(self) -> Capabilities | None:
        gateway = EVERY_GATEWAY.get(self.column)
        return gateway.capabilities if gateway is not None else None

    @property
    def operation(self) -> Operation | None:
        """What it takes of the gateway, where that is not the same everywhere."""
        field = HELD_BY.get(self.number)
        return _BY_FIELD[field] if field and self.capabilities else None


def table(records: Sequence[Record]) -> Iterator[str]:
    """The lines of the table."""
    tests = {name: each for record in records for name, each in record.tests.items()}
    claimed = claims()
    yield f"| | requirement | {' | '.join(COLUMNS)} |"
    yield f"|---|---|{'---|' * len(COLUMNS)}"
    for number, title in TITLES.items():
        cells = (said_of(Cell(number, column), tests, claimed[number]) for column in COLUMNS)
        yield f"| {number} | {title} | {' | '.join(cells)} |"


def said_of(cell: Cell, tests: Mapping[str, ItemResult], claimed: Sequence[str]) -> str:
    """What a cell says: failures first, then what the gateway refuses, then what passed."""
    ended = Counter(
        each.outcome
        for each in tests.values()
        if cell.number in each.numbers and cell.column in each.columns
    )
    if ended["failed"]:
        return f"**failed {ended['failed']}** of {ended.total()}"
    passed = f"passed {ended['passed']}" if ended["passed"] else ""
    refusal = _refusal(cell, tests)
    if refusal:
        return ", ".join(filter(None, (refusal, passed)))
    if passed and _is_emulated(cell):
        return passed.replace("passed", "emulated")
    return passed or (LEFT_OUT if ended else _unrecorded(cell, claimed))


def _refusal(cell: Cell, tests: Mapping[str, ItemResult]) -> str:
    operation, capabilities = cell.operation, cell.capabilities
    if operation is None or capabilities is None or operation.is_offered_by(capabilities):
        return ""
    if isinstance(operation.otherwise, str):
        return operation.otherwise
    proof = f"{_REFUSED}[{cell.column}-{operation.field}]"
    is_proved = any(name.endswith(proof) and tests[name].outcome == "passed" for name in tests)
    return f"raises `{operation.otherwise.__name__}`" if is_proved else ""


def _is_emulated(cell: Cell) -> bool:
    capabilities = cell.capabilities
    return capabilities is not None and HELD_BY.get(cell.number) in capabilities.emulated


def _unrecorded(cell: Cell, claimed: Sequence[str]) -> str:
    """Tests for this gateway that no recorded run ran, or nothing that would be its own."""
    own = [test for test in claimed if cell.column in of_folder(test.partition("::")[0])]
    shared = [test for test in claimed if test.startswith("pump/testing/contract")]
    return NOT_RUN if own or (shared and may_be_for(shared[0], cell.column)) else NOTHING


def runs(records: Sequence[Record]) -> Iterator[str]:
    """What was run: when a row is missing, so are its results."""
    yield "| run | commit | Python | tests | servers |"
    yield "|---|---|---|---|---|"
    for each in records:
        ended = Counter(test.outcome for test in each.tests.values())
        said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(ended.items()))
        servers = ", ".join(f"{name} {what}" for name, what in sorted(each.servers.items()))
        yield f"| {each.name} | {each.commit} | {each.python} | {said} | {servers or 'none'} |"


def refused_exceptions() -> set[str]:
    """The errors that a cell may name."""
    others = (each.otherwise for each in OPERATIONS if not isinstance(each.otherwise, str))
    return {error.__name__ for error in (*others, UnsupportedOperation)}
