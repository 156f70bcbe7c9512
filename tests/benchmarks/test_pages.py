"""Results that are kept group by group, and the tables and pages that are made of them."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from benchmarks import __main__ as command
from benchmarks.catalogue import Group
from benchmarks.reading import Reading, Results, Span
from benchmarks.runner import Measured, load_all, merged, save
from benchmarks.tables import aims_grid, grids

pytestmark = pytest.mark.slow
PAGE = "before\n<!-- last run -->\nold\n<!-- end of last run -->\nafter\n"


def reading(wall_s: float = 1.0) -> Reading:
    return Reading(messages=1000, spans={"pump": Span(wall_s=wall_s, cpu_s=0.02)})


def measured(group: Group, on: str = "2026-11-17", **readings: list[Reading]) -> Measured:
    named = {name.replace("_", "-"): each for name, each in readings.items()}
    return Measured(
        group=group,
        on=on,
        machine="Python 3.11.7, Linux, 2 cores",
        load=1.2,
        took_s=71.4,
        results=Results(readings=named),
    )


def test_what_was_saved_is_loaded_in_the_order_of_the_groups(tmp_path: Path) -> None:
    durable = measured(Group.DURABLE, pump_local=[reading(), reading(2.0)])
    memory = measured(Group.MEMORY, pump=[reading()])

    for each in (durable, memory):
        save(each, tmp_path)

    assert load_all(tmp_path) == [memory, durable]


def test_when_a_group_is_saved_again_then_only_its_own_results_change(tmp_path: Path) -> None:
    save(measured(Group.MEMORY, pump=[reading()], taskiq=[reading()]), tmp_path)
    save(measured(Group.DURABLE, pump_local=[reading()]), tmp_path)

    save(measured(Group.MEMORY, pump=[reading(3.0)]), tmp_path)

    found = merged(load_all(tmp_path)).readings
    assert set(found) == {"pump", "pump-local"}
    assert found["pump"] == [reading(3.0)]


def test_when_a_contender_is_gone_then_its_old_results_are_left_out(tmp_path: Path) -> None:
    save(measured(Group.MEMORY, pump=[reading()], bygone=[reading()]), tmp_path)

    [memory] = load_all(tmp_path)

    assert set(memory.results.readings) == {"pump"}


def test_what_is_missing_is_kept_without_the_words_of_an_import_error(tmp_path: Path) -> None:
    memory = measured(Group.MEMORY, pump=[reading()])
    memory.results.missing["taskiq"] = "taskiq (cannot import x from y (/somewhere/y.py))"

    save(memory, tmp_path)

    assert "/somewhere" not in (tmp_path / "memory.json").read_text()
    [loaded] = load_all(tmp_path)
    assert loaded.results.missing == {"taskiq": "taskiq"}


def test_a_table_says_when_it_was_measured() -> None:
    stored = [
        measured(Group.MEMORY, "2026-11-16", pump=[reading()]),
        measured(Group.GROWTH, growth_messages_10k=[reading(), reading()]),
    ]

    memory, growth, aims = command.as_markdown(stored, aims_grid(merged(stored)))

    assert "Measured on 2026-11-16: Python 3.11.7, Linux, 2 cores, load 1.2; one round" in memory
    assert "medians of 2 interleaved rounds, 71 s in all." in growth
    assert "Measured 2026-11-16 – 2026-11-17." in aims


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    for name in ("README", "ROOT_README"):
        monkeypatch.setattr(command, name, tmp_path / f"{name}.md")
        (tmp_path / f"{name}.md").write_text(PAGE)
    monkeypatch.setattr(command, "RESULTS", tmp_path / "results")
    return tmp_path / "README.md", tmp_path / "ROOT_README.md"


def test_when_one_group_is_written_then_the_tables_of_the_others_stay(
    pages: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "results").mkdir()
    save(measured(Group.MEMORY, pump=[reading()], dramatiq=[reading(9.0)]), tmp_path / "results")

    command.main(["--group", "overhead", "--messages", "100", "--repeat", "1", "--write", "--json"])

    readme, root = (page.read_text() for page in pages)
    for title in ("In memory: send", "Pump overhead: receive", "Aims"):
        assert f"**{title}" in readme
    assert "Pumphouse memory to dramatiq" in root
    assert "In memory: send" not in root
    assert "old" not in readme + root
    assert {each.name for each in (tmp_path / "results").iterdir()} == {
        "memory.json",
        "overhead.json",
    }


def test_when_results_are_stored_then_the_pages_can_be_made_without_measuring(
    pages: tuple[Path, Path], tmp_path: Path
) -> None:
    save(measured(Group.MEMORY, pump=[reading()]), tmp_path / "results")

    command.main(["--stored", "--write", "--json"])

    assert "Pumphouse memory, post_all" in pages[0].read_text()


@pytest.mark.parametrize(
    "arguments", [["--write", "--only", "pump"], ["--stored", "--group", "memory"]]
)
def test_parts_of_a_group_are_neither_written_nor_looked_up(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command.main(arguments)

    assert "--only" in capsys.readouterr().err


def test_when_the_readme_is_written_then_only_the_tables_change() -> None:
    once = command.with_last_run(PAGE, ["| new |"])

    assert "| new |" in once
    assert "old" not in once
    assert once.startswith("before\n")
    assert once.endswith("\nafter\n")
    assert command.with_last_run(once, ["| new |"]) == once


def test_what_is_kept_makes_the_tables_of_the_readme() -> None:
    """So that a table is never shown beside figures that are not those in the files."""
    stored = load_all(command.RESULTS)

    page = command.with_last_run(
        command.README.read_text(), command.as_markdown(stored, aims_grid(merged(stored)))
    )

    assert page == command.README.read_text()


# Lines of tables.


def test_a_line_compares_with_ours_in_the_same_group() -> None:
    span = Span(wall_s=1.0, cpu_s=0.5)
    readings = {
        "nats-pump": [Reading(messages=400, spans={"consume": span})],
        "nats-faststream": [Reading(messages=100, spans={"consume": span})],
    }

    table, *_ = grids(Results(readings=readings))

    assert table.title == "NATS JetStream: receive, handle, settle"
    assert [line[4] for line in table.lines] == ["1.00", "4.00"]


def test_a_table_of_sqs_shows_calls_and_processor_time_by_a_thousand_messages() -> None:
    measured_sqs = Reading(
        messages=2000,
        spans={"consume": Span(wall_s=0.5, cpu_s=0.4)},
        calls={"receivemessage": 402},
    )

    [grid, _] = grids(Results(readings={"pump-sqs": [measured_sqs]}))

    assert (
        "| Pumphouse SQS, aioboto3 | 2,000 | 4,000 | 201 | 200,000 | 1.00 | 1.00 |  |"
        in grid.to_markdown()
    )


def test_a_table_of_servers_shows_what_clients_and_servers_spent() -> None:
    ours, theirs = (
        attrs.evolve(
            reading(), spans={"life": Span(wall_s=w, cpu_s=c)}, figures={"client_cpu_s": 0.02}
        )
        for w, c in ((0.1, 0.1), (1.0, 0.9))
    )
    results = Results(readings={"life-pump-local": [ours], "life-localstack": [theirs]})

    [grid, found] = grids(results)

    assert (
        "| LocalStack | 1,000 | 1,000 | 900 | 0.90 | 20 | 10.00 | 9.00 | in memory |"
        in grid.to_markdown()
    )
    assert "| pump local to LocalStack | ≥ 8 | 10.00 |" in found.to_markdown()


def test_when_a_library_is_missing_then_the_table_says_what_to_install() -> None:
    results = Results(readings={"pump": [reading()]}, missing={"taskiq": "taskiq (no module)"})

    text = "\n".join(grid.to_markdown() for grid in grids(results))

    assert "| taskiq InMemoryBroker | – | – | – | – | – | needs taskiq |" in text
