"""`pump run --processes N`: a process that dies is restarted, and SIGHUP restarts all of them."""

import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest

from .conftest import Write
from .local_queues import send, visible_count
from .programs import PATIENCE_S, PUMP, environment
from .test_processes import ECHO, ONE_AT_A_TIME, a_telling_app, names
from .worker_groups import WorkerGroup, get, kill, post, text_at, until, until_status, workers_of

pytestmark = pytest.mark.timeout(300)


def settled(workers: WorkerGroup, count: int) -> None:
    """Wait until so many more messages are done."""
    workers.until("message.settled", count, status="processed")


def test_when_a_process_is_killed_then_another_takes_its_place_and_nothing_is_lost(
    write: Write, folder: Path
) -> None:
    # given a message in the hands of a process, which would handle it for ever
    handle = """def work(request: Work) -> None:
    import os
    try:
        os.mkdir("tried")
    except FileExistsError:
        tell(f"handled {request.name}")
    else:
        logging.getLogger("mine").info("started")
        open("gate").read()
"""
    write("app.py", a_telling_app(handle, settings=ONE_AT_A_TIME))
    os.mkfifo(folder / "gate")
    with workers_of(2, folder) as workers:
        before = workers.ready(2)
        send(folder, *names("one"), queue="work")
        [started] = workers.until("started")
        number = started["process"]

        # when it is killed
        kill(before[number])

        # then the other one, or its successor, handles the message
        [died] = workers.until("process.died")
        assert (died["process"], died["reason"]) == (number, "SIGKILL")
        after = workers.ready(1)
        assert after.keys() == {number}
        assert after[number] not in before.values()
        workers.program.out.wait_for("handled one")
        assert workers.end() == 0
        assert workers.handled() == ["handled one"]
    assert visible_count(folder, "work") == 0


def test_when_hung_up_then_every_process_is_replaced_and_messages_go_on_being_handled(
    write: Write, folder: Path
) -> None:
    write("app.py", a_telling_app(ECHO))
    with workers_of(2, folder) as workers:
        before = workers.ready(2)
        send(folder, *names("before"), queue="work")
        settled(workers, 1)

        # when it is told to restart, and messages come all the while
        # Of another length: Python tells a file that is a second younger by that only.
        write("app.py", a_telling_app(ECHO.replace("handled", "newly-handled")))
        workers.signal(signal.SIGHUP)
        workers.until("restart.started")
        send(folder, *names("while starting"), queue="work")
        after = workers.ready(1)
        send(folder, *names("half way"), queue="work")
        after |= workers.ready(1)
        workers.until("restart.completed")
        send(folder, *names("after"), queue="work")
        workers.program.out.wait_for("newly-handled after")

        # then all are new, none of the old ones left before its successor was ready, and no
        # more than one was there at a time beside as many as before
        assert workers.end() == 0
        assert after.keys() == before.keys()
        assert not set(after.values()) & set(before.values())
        assert _most_at_once(workers) == 3
        handled = workers.handled()
        assert {line.split(" ", 1)[1] for line in handled} == {
            *("before", "while starting", "half way", "after")
        }
        assert "newly-handled after" in handled
    assert visible_count(folder, "work") == 0


def _most_at_once(workers: WorkerGroup) -> int:
    """How many processes there were at once; none is missed while the run goes on."""
    alive = most = 0
    ready: set[int] = set()
    is_ending = False
    for event in workers.all_events():
        match event["event"]:
            case "process.started":
                alive += 1
            case "process.ready":
                ready.add(event["pid"])
            case "restart.completed":
                is_ending = True
            case "process.ended":
                alive -= 1
                ready.discard(event["pid"])
                assert is_ending or len(ready) >= 2
        most = max(most, alive)
    return most


@pytest.mark.slow
def test_when_every_process_is_hung_up_at_once_then_they_are_replaced_and_none_dies(
    write: Write, folder: Path
) -> None:
    write("app.py", a_telling_app(ECHO))
    with workers_of(2, folder) as workers:
        before = workers.ready(2)

        # As `systemctl kill -s HUP` does, which signals all processes of a unit.
        for pid in before.values():
            os.kill(pid, signal.SIGHUP)
        workers.signal(signal.SIGHUP)
        workers.until("restart.completed")

        assert workers.end() == 0
        events = workers.all_events()
        assert not [each for each in events if each["event"] == "process.died"]
        ended = [each["reason"] for each in events if each["event"] == "process.ended"]
        assert ended == ["exit code 0"] * 4


@pytest.mark.slow
def test_when_hung_up_with_an_app_that_is_broken_then_the_old_processes_go_on(
    write: Write, folder: Path
) -> None:
    write("app.py", a_telling_app(ECHO))
    with workers_of(2, folder) as workers:
        workers.ready(2)

        write("app.py", "app = (")
        workers.signal(signal.SIGHUP)
        workers.until("restart.abandoned")

        send(folder, *names("all the same"), queue="work")
        settled(workers, 1)
        assert workers.end() == 0
        assert workers.handled() == ["handled all the same"]


@pytest.mark.slow
def test_when_a_process_meets_too_many_unacceptable_messages_then_it_is_not_restarted(
    write: Write, folder: Path
) -> None:
    handle = """def work(request: Work) -> None:
    raise InvalidMessage("never")
"""
    limit = "unacceptable_limit=UnacceptableLimit(count=1), concurrency=1, prefetch=0"
    write("app.py", a_telling_app(handle, settings=limit))
    with workers_of(2, folder) as workers:
        workers.ready(2)

        # One after the other: each of them meets one.
        for _ in range(2):
            send(folder, *names("bad"), queue="work")
            workers.until("process.ended", reason="exit code 5")

        assert workers.wait() == 5
        assert not [each for each in workers.all_events() if each["event"] == "process.died"]


def test_health_is_that_of_all_processes_together(write: Write, folder: Path) -> None:
    # A process that starts while there is a file "hold" waits for the test.
    start = "import os\nif os.path.exists('hold'): open('gate').read()"
    write("app.py", a_telling_app(ECHO, settings="concurrency=3", start=start))
    os.mkfifo(folder / "gate")
    served = ("--health=0", "--telemetry=prometheus:0")
    with workers_of(2, folder, *served) as workers:
        url = workers.address()
        metrics = workers.address("metrics.served")
        pids = workers.ready(2)
        send(folder, *names(*range(20)), queue="work")
        settled(workers, 20)

        # the sums are those of all
        found = until(lambda: get(f"{url}/health"), lambda _, found: found["ready"])
        assert (found["live"], found["gateway"]) == (True, "local://")
        assert {each["process"]: each["pid"] for each in found["processes"]} == pids
        [work] = found["subscriptions"]
        assert (work["state"], work["concurrency"], work["counts"]["processed"]) == (
            *("running", 6),
            20,
        )
        until_status(f"{url}/livez", 200)
        until_status(f"{url}/readyz", 200)
        done = 'pump_messages_completed{queue="work"} 20\n'
        assert done in text_at(f"{url}/metrics")
        assert done in text_at(metrics)

        # a process that has died is missed, and what it had done is not forgotten
        write("hold", "")
        kill(pids[2])
        workers.until("process.died")
        assert done in text_at(metrics)
        found = until(lambda: get(f"{url}/readyz"), lambda _, found: len(found["reasons"]) == 1)
        assert found["ready"] is False
        assert found["reasons"][0].startswith("process 2: it ")
        (folder / "gate").write_text("go")
        workers.ready(1)
        until_status(f"{url}/readyz", 200)
        assert done in text_at(metrics)
        assert workers.end() == 0


@pytest.mark.slow
def test_when_a_process_does_not_answer_then_the_whole_is_not_alive_until_it_does(
    write: Write, folder: Path
) -> None:
    # given a handler that blocks the event loop of its process
    handle = """async def work(request: Work) -> None:
    logging.getLogger("mine").info("started")
    open("gate").read()
"""
    write("app.py", a_telling_app(handle, settings=ONE_AT_A_TIME))
    os.mkfifo(folder / "gate")
    with workers_of(2, folder, "--health=0") as workers:
        url = workers.address()
        workers.ready(2)
        send(folder, *names("one"), queue="work")
        [started] = workers.until("started")

        # then it is missed, until it is done
        why = f"process {started['process']}: it does not answer"
        found = until(lambda: get(f"{url}/livez"), lambda _, found: found["reasons"] == [why])
        assert found["live"] is False
        until(lambda: get(f"{url}/readyz"), lambda _, found: found["reasons"] == [why])
        (folder / "gate").write_text("go")
        settled(workers, 1)
        until_status(f"{url}/livez", 200)
        assert workers.end() == 0


def test_what_is_asked_of_a_subscription_is_done_by_every_process_and_those_to_come(
    write: Write, folder: Path
) -> None:
    write("app.py", a_telling_app(ECHO))
    with workers_of(2, folder, "--control=0") as workers:
        work = f"{workers.address('control.served')}/subscriptions/work"
        pids = workers.ready(2)

        # when a subscription is paused and scaled, and a process dies
        assert post(f"{work}/pause")[1]["state"] == "paused"
        until(
            lambda: post(f"{work}/scale", {"concurrency": 4}),
            lambda _, found: found.get("concurrency") == 8,
        )
        kill(pids[1])
        workers.ready(1)

        # then the one in its place has been told, too
        found = until(lambda: get(work), lambda _, found: found.get("concurrency") == 8)
        assert (found["state"], found["asked"]) == ("paused", "pause")
        send(folder, *names("one"), queue="work")
        assert post(f"{work}/resume")[1]["state"] == "running"
        settled(workers, 1)

        # and what makes no sense, or is not there, is refused
        assert post(f"{work}/scale", {"concurrency": 0})[0] == 422
        status, refused = post(f"{work[:-4]}other/pause")
        assert (status, "use one of work" in refused["error"]) == (404, True)

        # and all end when the whole is drained
        status, found = post(f"{work.removesuffix('/subscriptions/work')}/drain")
        assert (status, found["draining"]) == (202, True)
        assert workers.wait() == 0


@pytest.mark.slow
def test_what_is_asked_during_a_restart_is_done_by_the_process_that_is_starting(
    write: Write, folder: Path
) -> None:
    # given a restart whose new process waits for the test
    start = "import os\nif os.path.exists('hold'): open('gate').read()"
    write("app.py", a_telling_app(ECHO, start=start))
    os.mkfifo(folder / "gate")
    with workers_of(1, folder, "--control=0") as workers:
        work = f"{workers.address('control.served')}/subscriptions/work"
        workers.ready(1)
        write("hold", "")
        workers.signal(signal.SIGHUP)
        workers.until("process.started")

        # when a subscription is paused before that one has the place
        until(lambda: post(f"{work}/pause"), lambda status, _: status == 200)
        (folder / "gate").write_text("go")
        workers.ready(1)
        workers.until("restart.completed")

        # then it is paused there as well
        found = until(lambda: get(work), lambda status, _: status == 200)
        assert (found["state"], found["asked"]) == ("paused", "pause")
        assert workers.end() == 0


@pytest.mark.slow
def test_when_its_terminal_is_closed_then_it_drains_however_often_that_is_told(
    write: Write, folder: Path
) -> None:
    # given a process with a handler that waits for the test
    handle = """def work(request: Work) -> None:
    logging.getLogger("mine").warning("at work")
    open("gate").read()
    open("finished", "w").close()
"""
    write("app.py", a_telling_app(handle, settings=ONE_AT_A_TIME))
    os.mkfifo(folder / "gate")
    send(folder, *names("one"), queue="work")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*PUMP, "run", "app:app", "--processes=2", "--log-format=console", "--health=0"],
        cwd=folder,
        env=environment(NO_COLOR="1"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        shown = b""
        while shown.count(b"process.ready") < 2 or b"at work" not in shown:
            shown += os.read(ours, 65_536)
        address = shown.split(b"address=")[1].split()[0].decode()

        # when its terminal is closed: the shell tells of it, and the system once more
        os.close(ours)
        for _ in range(2):
            process.send_signal(signal.SIGHUP)
            until(lambda: get(f"{address}/health"), lambda _, found: found["draining"])
        (folder / "gate").write_text("go")

        # then what was started finishes
        assert process.wait(PATIENCE_S) == 0
        assert (folder / "finished").exists()
    finally:
        process.kill()
        process.wait()
