"""The benchmarks' command line: `python -m benchmarks --help`."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
from rich.console import Console

from .catalogue import BY_NAME, CONTENDERS
from .contender import Contender, Group
from .rounds import Results, run_rounds
from .summary import aims, row_of
from .tables import grids

README = Path(__file__).with_name("README.md")
_FILE_WIDTH = 140
ROOT_README = README.parent.parent / "README.md"
_GROUPS = {group.name.lower().replace("_", "-"): group for group in Group}
_MARKED = re.compile(r"(<!-- last run -->\n).*?(<!-- end of last run -->)", re.DOTALL)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print tables or JSON. Never fails for a figure: machines differ."""
    options = _parse(arguments)
    results = _measure(options)
    if options.json:
        print(json.dumps(_as_json(results), indent=2))
    else:
        console = Console()
        if not console.is_terminal:
            console = Console(width=_FILE_WIDTH)
        console.print(f"{_machine()}; {options.repeat} rounds, medians")
        for grid in grids(results):
            console.print(grid.to_rich())
        for name, missing in results.missing.items():
            console.print(f"not measured: {name}, needs {missing}")
    if options.write:
        said, *tables = _as_markdown(results, options.repeat)
        README.write_text(with_last_run(README.read_text(), [said, *tables]))
        # The last table says how we compare; that is what a newcomer wants to know.
        ROOT_README.write_text(with_last_run(ROOT_README.read_text(), [said, tables[-1]]))


def with_last_run(readme: str, parts: Sequence[str]) -> str:
    """The page with what stands between its marks replaced."""
    text = "\n\n".join(parts)
    return _MARKED.sub(lambda marks: f"{marks[1]}\n{text}\n\n{marks[2]}", readme)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--messages", type=int, default=50_000, help="slow contenders get a part (%(default)s)"
    )
    parser.add_argument("--only", nargs="+", choices=BY_NAME, metavar="NAME", help=str([*BY_NAME]))
    parser.add_argument(
        "--group", nargs="+", choices=_GROUPS, metavar="GROUP", help=str([*_GROUPS])
    )
    parser.add_argument("--repeat", type=int, default=5, help="rounds (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--write", action="store_true", help="put the tables into README.md")
    options = parser.parse_args(arguments)
    if options.messages < 1 or options.repeat < 1:
        parser.error("--messages and --repeat must be 1 or more")
    if options.write and (options.only or options.group):
        parser.error("--write needs all contenders; leave --only and --group out")
    return options


def _measure(options: argparse.Namespace) -> Results:
    wanted = [each for each in CONTENDERS if _is_wanted(each, options)]
    console = Console(stderr=True)
    with console.status("starting") as status:

        def show(round_: int, contender: Contender) -> None:
            count = contender.messages(options.messages)
            status.update(f"round {round_ + 1} of {options.repeat}: {contender.title}, {count:,}")

        return run_rounds(wanted, messages=options.messages, repeat=options.repeat, on_start=show)


def _is_wanted(contender: Contender, options: argparse.Namespace) -> bool:
    if not (options.only or options.group):
        return True
    groups = [_GROUPS[name] for name in options.group or ()]
    return contender.name in (options.only or ()) or contender.group in groups


def _machine() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = f", load {os.getloadavg()[1]:.1f}" if hasattr(os, "getloadavg") else ""
    return f"Python {platform.python_version()}, {platform.system()}, {cores} cores{load}"


def _as_json(results: Results) -> dict[str, Any]:
    return {
        "machine": _machine(),
        "contenders": {
            name: attrs.asdict(row_of(name, readings))
            | {"rounds": [reading.to_json() for reading in readings]}
            for name, readings in results.readings.items()
        },
        "missing": results.missing,
        "aims": [attrs.asdict(aim) | {"is_met": aim.is_met} for aim in aims(results.readings)],
    }


def _as_markdown(results: Results, repeat: int) -> list[str]:
    today = datetime.datetime.now(datetime.UTC).date()
    said = f"Measured on {today}: {_machine()}; medians of {repeat} interleaved rounds."
    return [said, *(grid.to_markdown() for grid in grids(results))]


if __name__ == "__main__":
    main()
