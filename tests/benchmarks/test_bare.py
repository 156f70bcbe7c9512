"""The build without hooks, which the others are compared with."""

from pathlib import Path

import pytest

from benchmarks.contenders.bare import cut_hooks, make_bare_copy

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("source", "cut"),
    [
        ("if self._telemetry is not None:\n    tell()\nwork()", "work()"),
        ("if self.telemetry is None:\n    work()\nelse:\n    watched()", "work()"),
        (
            "if encryption is not None:\n    decrypt()\nelif body.startswith(MAGIC):\n    fail()",
            "pass",
        ),
        ("tells = self._emit is not None or wants_delivery_lines()", "tells = False"),
        ("if self._encryption is None and body.startswith(MAGIC):\n    fail()\nsend()", "send()"),
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
        for question in ("telemetry is", "encryption is", "emit is", "wants_delivery_lines()"):
            assert question not in source, path.name
