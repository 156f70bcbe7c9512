"""The benchmarks' command line: `python -m benchmarks --help`."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
from rich.console import Console

from .aims import aims, row_of
from .catalogue import BY_NAME, Contender, Group, of_group
from .reading import ROOT, Results
from .runner import Measured, load_all, merged, run_rounds, save
from .tables import Grid, aims_grid, measured_grids

README = Path(__file__).with_name("README.md")
RESULTS = README.with_name("results")
ROOT_README = ROOT / "README.md"
_FILE_WIDTH = 140
_GROUPS = {group.key: group for group in Group}
_MARKED = re.compile(r"(<!-- last run -->\n).*?(<!-- end of last run -->)", re.DOTALL)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print tables or JSON. Never fails for a figure: machines differ."""
    options = _parse(arguments)
    shown = load_all(RESULTS) if options.stored else list(_measure(options))
    if not shown:
        raise SystemExit("nothing is kept yet: measure with --write first")
    if options.json:
        print(json.dumps(_as_json(merged(shown)), indent=2))
    else:
        _print(shown)
    if options.write:
        _write(load_all(RESULTS))


def _print(shown: Sequence[Measured]) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=_FILE_WIDTH)
    for each in shown:
        console.print(each.said)
        for grid in measured_grids(each.results):
            console.print(grid.to_rich())
    results = merged(shown)
    console.print(aims_grid(results).to_rich())
    for name, missing in results.missing.items():
        console.print(f"not measured: {name}, needs {missing}")


def _write(stored: Sequence[Measured]) -> None:
    found = aims_grid(merged(stored))
    README.write_text(with_last_run(README.read_text(), as_markdown(stored, found)))
    # How we compare is what a newcomer wants to know.
    said = f"{_when(stored)}. Details: `benchmarks/README.md`."
    ROOT_README.write_text(with_last_run(ROOT_README.read_text(), [found.to_markdown(said)]))


def as_markdown(stored: Sequence[Measured], found: Grid) -> list[str]:
    """Every table, with when and where it was measured; the aims at the end."""
    return [
        *(grid.to_markdown(each.said) for each in stored for grid in measured_grids(each.results)),
        found.to_markdown(f"From the tables above. {_when(stored)}."),
    ]


def _when(stored: Sequence[Measured]) -> str:
    dates = sorted({each.on for each in stored})
    return f"Measured on {dates[0]}" if len(dates) == 1 else f"Measured {dates[0]} – {dates[-1]}"


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
    parser.add_argument(
        "--write", action="store_true", help="keep the results, and put the tables into README.md"
    )
    parser.add_argument(
        "--stored", action="store_true", help="measure nothing, show what --write has kept"
    )
    options = parser.parse_args(arguments)
    if options.messages < 1 or options.repeat < 1:
        parser.error("--messages and --repeat must be 1 or more")
    if options.write and options.only:
        parser.error("--write needs whole groups; use --group instead of --only")
    if options.stored and (options.only or options.group):
        parser.error("--stored shows all that was kept; leave --only and --group out")
    return options


def _measure(options: argparse.Namespace) -> Iterator[Measured]:
    """Group after group: what one of them has measured is kept though the next should break."""
    console = Console(stderr=True)
    for group in Group:
        wanted = [each for each in of_group(group) if _is_wanted(each, options)]
        if not wanted:
            continue
        measured = _measure_group(group, wanted, options, console)
        console.print(f"{group.key}: {measured.took_s:,.0f} s")
        if options.write:
            save(measured, RESULTS)
        yield measured


def _measure_group(
    group: Group, wanted: Sequence[Contender], options: argparse.Namespace, console: Console
) -> Measured:
    started_s = time.monotonic()
    with console.status("starting") as status:

        def show(round_: int, contender: Contender) -> None:
            count = contender.messages(options.messages)
            what = f"{group.key}, round {round_ + 1} of {options.repeat}"
            status.update(f"{what}: {contender.title}, {count:,}")

        results = run_rounds(
            wanted, messages=options.messages, repeat=options.repeat, on_start=show
        )
    return Measured(
        group=group,
        on=str(datetime.datetime.now(datetime.UTC).date()),
        machine=_machine(),
        load=round(os.getloadavg()[1], 1) if hasattr(os, "getloadavg") else None,
        took_s=round(time.monotonic() - started_s, 1),
        results=results,
    )


def _is_wanted(contender: Contender, options: argparse.Namespace) -> bool:
    if not (options.only or options.group):
        return True
    groups = [_GROUPS[name] for name in options.group or ()]
    return contender.name in (options.only or ()) or contender.group in groups


def _machine() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"Python {platform.python_version()}, {platform.system()}, {cores} cores"


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


if __name__ == "__main__":
    main()
