"""`pump bench` as a process: on a terminal, and ended by signals."""

import json
import re
import signal
from pathlib import Path

import pytest

from .conftest import Write
from .local_queues import visible_count
from .programs import pump as run_pump, running
from .test_bench import ADA, SLOW
from .test_terminal import on_a_terminal

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 130)])
def test_on_a_terminal_it_asks_before_handlers_run(
    greetings: Path, folder: Path, answer: str, code: int
) -> None:
    exit_code, output = on_a_terminal(
        *("bench", "greeting:app", "--body", ADA, "-n", "5"), folder=folder, typed=f"{answer}\n"
    )

    assert exit_code == code
    assert "Run the handlers of greeting:app on 5 messages on local://" in output
    assert ("Hello, Ada!" in output) == (code == 0)
    assert ("5 handled of 5 sent" in output) == (code == 0)


def test_ctrl_c_lets_what_runs_finish_and_says_what_is_left(write: Write, folder: Path) -> None:
    write("slow.py", SLOW.replace("WAIT_S", "0.2"))

    with running(*_slow_bench(), folder=folder) as program:
        program.err.wait_for("started")
        program.signal(signal.SIGINT)
        exit_code = program.wait()
        read = json.loads("\n".join(program.out.rest()))
        told = "\n".join(program.err.rest())

    assert (exit_code, read["measured"]["ended"]) == (130, "interrupted")
    assert "interrupted after" in told
    for left in read["left"]:
        assert f"the queue {left['queue']!r} is left, empty" in told
        assert visible_count(folder, left["queue"]) == 0
    assert [each["queue"].split("-bench-")[0] for each in read["left"]] == ["work-dead", "work"]


def test_twice_ctrl_c_ends_what_runs_and_still_empties_the_queues(
    write: Write, folder: Path
) -> None:
    write("slow.py", SLOW.replace("WAIT_S", "600"))

    with running(*_slow_bench(), folder=folder) as program:
        program.err.wait_for("started")
        program.signal(signal.SIGINT)
        program.signal(signal.SIGTERM)
        exit_code = program.wait()
        told = program.err.rest()

    left = [line for line in told if "is left, empty" in line]
    assert (exit_code, len(left)) == (130, 2)
    [queue] = [line.split("'")[1] for line in left if "work-bench" in line]
    assert visible_count(folder, queue) == 0


def _slow_bench() -> list[str]:
    return ["bench", "slow:app", "--body", ADA, "-n", "400", "--for", "60s", "--yes", "--json"]


def test_the_help_teaches_by_examples(folder: Path) -> None:
    told = run_pump("bench", "--help", folder=folder).stdout

    assert "Examples:\n    pump bench app:app" in told
    listed = run_pump("--help", folder=folder).stdout
    assert re.search(r"\n  bench +Measure an app on a gateway\.\n", listed)
