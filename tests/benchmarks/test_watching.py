"""The build without hooks, and the table of what watching costs."""

from pathlib import Path

import pytest

from benchmarks.reading import Reading, Span
from benchmarks.rounds import Results
from benchmarks.summary import aims
from benchmarks.watching.bare import cut_hooks, make_bare_copy
from benchmarks.watching.tables import watched_grid


@pytest.mark.parametrize(
    ("source", "cut"),
    [
        ("if self._telemetry is not None:\n    tell()\nwork()", "work()"),
        ("if self.telemetry is None:\n    work()\nelse:\n    watched()", "work()"),
        ("if sealing is not None:\n    unseal()\nelif body.startswith(MAGIC):\n    fail()", "pass"),
        ("tells = self._emit is not None or wants_delivery_lines()", "tells = False"),
        ("if self._sealing is None and body.startswith(MAGIC):\n    fail()\nsend()", "send()"),
        ("if self._failure is not None:\n    fail()", "if self._failure is not None:\n    fail()"),
    ],
)
def test_when_hooks_are_cut_then_what_only_listeners_need_is_gone_and_the_rest_stays(
    source: str, cut: str
) -> None:
    made, _ = cut_hooks(source)

    assert "\n".join(line for line in made.splitlines() if line != "pass" or cut == "pass") == cut


def test_when_a_bare_copy_is_made_then_nothing_on_a_messages_way_asks_for_listeners(
    tmp_path: Path,
) -> None:
    assert make_bare_copy(tmp_path) >= 15

    for path in [*tmp_path.glob("pump/loop/*.py"), tmp_path / "pump/posting.py"]:
        source = path.read_text()
        for question in ("telemetry is", "sealing is", "emit is", "wants_delivery_lines()"):
            assert question not in source, path.name


def test_when_pumps_were_watched_then_the_table_shows_what_it_added() -> None:
    readings = {
        "watched-bare": [_reading(9.9)],
        "watched-off": [_reading(10.0)],
        "watched-logs-metrics": [_reading(25.0)],
        "watched-off-1k": [_reading(12.0)],
        "watched-encryption-1k": [_reading(18.0)],
    }

    lines = {line[0]: line for line in watched_grid(Results(readings)).lines}
    found = {aim.title: aim for aim in aims(readings)}

    assert lines["logs and metrics"][2:5] == ("25.0", "+15.0", "2.50")
    assert lines["encryption, 1 KiB"][2:5] == ("18.0", "+6.0", "1.50")
    assert found["Everything off to a build without the hooks"].measured.median == pytest.approx(
        10.0 / 9.9
    )
    assert found["Logs and metrics"].measured.median == pytest.approx(15.0)


def _reading(cpu_us: float) -> Reading:
    return Reading(messages=1000, spans={"pump": Span(wall_s=1.0, cpu_s=cpu_us / 1000)})
