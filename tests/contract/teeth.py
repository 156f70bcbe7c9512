"""Which tests find which saboteur out, as `teeth.toml` records it.

After adding a test or a saboteur, record anew and read the difference:

    python -m tests.contract.teeth
"""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..blocked_loop import blocking_raises
from .saboteurs import SABOTEURS, Saboteur
from .trial import CONTRACT, always_fails, failures

RECORD = Path(__file__).with_name("teeth.toml")

SOAK = "test_when_everything_happens_at_once_then_nothing_is_lost_or_doubled"
"""Whether the soak meets a fault depends on its seed: it counts when every seed meets it."""


def recorded() -> dict[str, frozenset[str]]:
    """The tests that fail, by saboteur."""
    record = tomllib.loads(RECORD.read_text(encoding="utf-8"))
    return {name: frozenset(entry["caught_by"]) for name, entry in record.items()}


def observe(saboteur: type[Saboteur]) -> frozenset[str]:
    """The tests that fail now."""
    found = failures(saboteur, CONTRACT)
    if SOAK in found and not always_fails(saboteur, CONTRACT[SOAK]):
        found.discard(SOAK)
    return frozenset(found)


def render(record: Mapping[str, Iterable[str]]) -> str:
    """The record as TOML."""
    lines = [
        "# Written by `python -m tests.contract.teeth`; read the difference before you commit."
    ]
    for name, tests in record.items():
        lines += ["", f"[{name}]", "caught_by = ["]
        lines += [f'    "{test}",' for test in sorted(tests)]
        lines += ["]"]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Record what every saboteur is caught by."""
    logging.disable(logging.CRITICAL)
    with blocking_raises():
        record = {saboteur.__name__: observe(saboteur) for saboteur in SABOTEURS}
    RECORD.write_text(render(record), encoding="utf-8")


if __name__ == "__main__":
    main()
