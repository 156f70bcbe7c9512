"""The command line: `pump run`, `send`, `peek`, `purge`, `queues`, `spill`, `new`, `doctor`.

Nothing is imported here before it is needed, so that `pump --help` answers at once.
"""

from __future__ import annotations

from typing import NoReturn


def main() -> NoReturn:
    """Run the command line and leave with one of `pump.exit_codes`."""
    from .root import cli

    cli(prog_name="pump")
    raise SystemExit(0)
