"""`pump run --processes N`: several processes on one queue, which end together."""

import os
import signal
from pathlib import Path

import pytest

from .conftest import Pump, Write
from .local_queues import send, visible_count
from .test_run import an_app
from .worker_groups import workers_of

pytestmark = pytest.mark.timeout(300)

ECHO = """def work(request: Work) -> None:
    tell(f"handled {request.name}")
"""
TELL = """
def tell(line: str) -> None:
    # One write, as print makes two: other processes print as well.
    print(line + "\\n", end="", flush=True)
"""
ONE_AT_A_TIME = "concurrency=1, prefetch=0"


def a_telling_app(handle: str, settings: str = "", start: str = "") -> str:
    """An app whose handler's body is `handle`; it can `tell` what it does."""
    return an_app(handle, settings=settings, start=f"{start}\n{TELL}")


def names(*values: object) -> list[str]:
    return [f'{{"name": "{value}"}}' for value in values]


def test_when_the_queues_are_empty_then_until_empty_ends_all_and_the_sum_is_told(
    write: Write, folder: Path
) -> None:
    # given two messages whose handlers wait for each other, in processes that handle one at a time
    handle = """def work(request: Work) -> None:
    open("gate", request.name).close()
    tell("met")
"""
    write("app.py", a_telling_app(handle, settings=ONE_AT_A_TIME))
    os.mkfifo(folder / "gate")
    send(folder, *names("r", "w"), queue="work")

    # when two processes work on them
    with workers_of(2, folder, "--until-empty") as workers:
        code = workers.wait()

        # then each has handled one, and every line says which process wrote it
        assert code == 0
        assert workers.handled() == ["met", "met"]
        events = workers.all_events()
        settled = [event for event in events if event["event"] == "message.settled"]
        assert sorted(event["process"] for event in settled) == [1, 2]
        assert all("process" in each for each in events if each["logger"] == "pump.loop")
        [started] = [event for event in events if event["event"] == "run.started"]
        [ended] = [event for event in events if event["event"] == "run.ended"]
        assert started["app"] == "app:app"
        assert (ended["received"], ended["processed"]) == (2, 2)


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_when_signalled_then_what_was_started_finishes_in_every_process(
    write: Write, folder: Path, number: signal.Signals
) -> None:
    # given two processes, each with a handler that waits for the test, and one message more
    handle = """def work(request: Work) -> None:
    logging.getLogger("mine").info("started")
    open(request.name).read()
    tell("finished")
"""
    write("app.py", a_telling_app(handle, settings=ONE_AT_A_TIME))
    for gate in ("one", "two"):
        os.mkfifo(folder / gate)
    send(folder, *names("one", "two", "three"), queue="work")
    with workers_of(2, folder) as workers:
        workers.until("started", 2)

        # when they are told to stop, and only then allowed to finish
        workers.signal(number)
        workers.until("drain.started", 2)
        for gate in ("one", "two"):
            (folder / gate).write_text("go")

        # then the work is done, and the rest untouched
        assert workers.wait() == 0
        assert workers.handled() == ["finished", "finished"]
    assert visible_count(folder, "work") == 1


def test_when_every_process_is_signalled_at_once_then_that_drains_and_does_not_stop_them(
    write: Write, folder: Path
) -> None:
    handle = """def work(request: Work) -> None:
    logging.getLogger("mine").info("started")
    open("gate").read()
    tell("finished")
"""
    write("app.py", a_telling_app(handle, settings=ONE_AT_A_TIME))
    os.mkfifo(folder / "gate")
    with workers_of(2, folder) as workers:
        pids = workers.ready(2)
        send(folder, *names("one"), queue="work")
        workers.until("started")

        # As systemd does, which signals all processes of a unit.
        for pid in pids.values():
            os.kill(pid, signal.SIGTERM)
        workers.signal()
        workers.until("drain.started", 2)
        (folder / "gate").write_text("go")

        assert workers.wait() == 0
        assert workers.handled() == ["finished"]


def test_when_signalled_twice_then_all_stop_at_once_with_130_and_hand_their_messages_back(
    write: Write, folder: Path
) -> None:
    handle = """async def work(request: Work) -> None:
    logging.getLogger("mine").info("started")
    await asyncio.Event().wait()
"""
    write("app.py", a_telling_app(handle, settings=ONE_AT_A_TIME))
    send(folder, *names("one", "two"), queue="work")
    with workers_of(2, folder) as workers:
        workers.until("started", 2)

        workers.signal()
        workers.until("drain.started", 2)
        workers.signal()

        assert workers.wait() == 130
    assert visible_count(folder, "work") == 2


@pytest.mark.slow
def test_when_a_process_hears_nothing_then_the_third_signal_kills_it(
    write: Write, folder: Path
) -> None:
    # given a handler that blocks its event loop
    handle = """async def work(request: Work) -> None:
    logging.getLogger("mine").info("started")
    open("gate").read()
"""
    write("app.py", a_telling_app(handle, settings=ONE_AT_A_TIME))
    os.mkfifo(folder / "gate")
    with workers_of(2, folder) as workers:
        workers.ready(2)
        send(folder, *names("one"), queue="work")
        [started] = workers.until("started")

        # when it is told twice, which only the other one hears, and a third time
        workers.signal()
        workers.until("process.ended")
        # Two of a kind could arrive as one.
        workers.signal(signal.SIGTERM)
        workers.signal(signal.SIGINT)

        # then it is gone, and its message comes again
        assert workers.wait() == 130
        [*_, last] = [each for each in workers.all_events() if each["event"] == "process.ended"]
        assert (last["process"], last["reason"]) == (started["process"], "SIGKILL")
    assert visible_count(folder, "work") == 1


def test_when_the_supervisor_is_killed_then_its_processes_drain_and_end(
    write: Write, folder: Path
) -> None:
    # given two processes, one of which has started something
    handle = """def work(request: Work) -> None:
    logging.getLogger("mine").info("started")
    open("gate").read()
    tell("finished")
"""
    write("app.py", a_telling_app(handle, settings=ONE_AT_A_TIME))
    os.mkfifo(folder / "gate")
    with workers_of(2, folder) as workers:
        workers.ready(2)
        send(folder, *names("one"), queue="work")
        workers.until("started")

        # when the supervisor dies
        workers.signal(signal.SIGKILL)
        workers.until("drain.started", 2)
        (folder / "gate").write_text("go")

        # then what was started finishes, and nobody is left
        assert workers.wait() == -signal.SIGKILL
        assert workers.handled() == ["finished"]
        lost = [each for each in workers.all_events() if each["event"] == "supervisor.lost"]
        assert sorted(each["process"] for each in lost) == [1, 2]
    assert visible_count(folder, "work") == 0


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("app = (", 3, "SyntaxError"),
        (
            a_telling_app(ECHO, "make_channels='validate'"),
            4,
            "error: queue 'work-dead' does not exist",
        ),
        (
            a_telling_app(ECHO).replace("local://", "memory://"),
            3,
            "error: --processes: the queues of memory:// are in one process only; leave",
        ),
    ],
    ids=["broken", "no queue", "memory"],
)
def test_when_the_app_cannot_run_then_that_is_said_once_and_its_exit_code_is_the_runs(
    write: Write, folder: Path, text: str, code: int, words: str
) -> None:
    write("app.py", text)

    with workers_of(3, folder) as workers:
        assert workers.wait() == code
        lines = workers.plain_lines()

    assert sum(line.startswith("error: ") for line in lines) == 1
    assert words in "\n".join(lines)


def test_when_the_app_can_run_only_once_then_the_second_process_ends_the_run(
    write: Write, folder: Path
) -> None:
    start = "import os; os.mkdir('mine')"
    write("app.py", a_telling_app(ECHO, start=start))

    with workers_of(2, folder) as workers:
        assert workers.wait() == 3
        lines = workers.plain_lines()

    errors = [line for line in lines if line.startswith("error: ")]
    assert errors == [
        "error: importing 'app' failed: FileExistsError: [Errno 17] File exists: 'mine'"
    ]


def test_when_it_is_to_reload_as_well_then_the_usage_is_wrong_and_the_remedy_said(
    pump: Pump,
) -> None:
    result = pump("run", "app:app", "--reload", "--processes", "2")

    assert result.exit_code == 2
    assert "leave --processes out" in result.stderr


def test_when_the_count_is_no_number_then_the_usage_is_wrong(pump: Pump) -> None:
    result = pump("run", "app:app", "--processes", "many")

    assert result.exit_code == 2
    assert "'many' is not a whole number; write 4, or auto for all cores" in result.stderr
