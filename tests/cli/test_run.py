"""`pump run` as a process: signals, exit codes, and other processes on the same queue."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from .conftest import GREETINGS, Write
from .local_queues import rejections, send, visible_count
from .programs import pump, run_to_its_end, running

pytestmark = pytest.mark.timeout(300)

TEXT = ("--log-format", "console")


def an_app(handle: str, settings: str = "", start: str = "") -> str:
    """An app whose handler's body is `handle`."""
    return f"""
from pump import App, Command, InvalidMessage, Subscription, UnacceptableLimit
import asyncio, logging, time
{start}

app = App("local://")

class Work(Command):
    name: str

@app.handler
{handle}

app.subscribe(
    Subscription(queue="work", request=Work, dead_letter_queue="work-dead", {settings})
)
"""


ADA = '{"name": "Ada"}'


def test_when_another_process_sends_while_it_runs_then_the_message_is_handled(
    greetings: Path, folder: Path
) -> None:
    with running("run", "greeting:app", *TEXT, folder=folder) as program:
        program.out.wait_for("Running.")

        sent = pump("send", "greetings", '{"name": "Ada"}', folder=folder)

        program.out.wait_for("Hello, Ada!")
        program.err.wait_for(sent.stdout.strip())
        program.signal()
        assert program.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_when_signalled_then_what_was_started_finishes_and_the_exit_code_is_0(
    write: Write, folder: Path, number: signal.Signals
) -> None:
    # given a handler that has started and waits for the test to open a pipe
    handle = """def work(request: Work) -> None:
    print("started", flush=True)
    open("gate").read()
    print("finished", flush=True)
"""
    write("app.py", an_app(handle, settings="concurrency=1, prefetch=0"))
    os.mkfifo(folder / "gate")
    send(folder, ADA, ADA, queue="work")
    with running("run", "app:app", *TEXT, folder=folder) as program:
        program.out.wait_for("started")

        # when it is told to stop, and only then allowed to finish
        program.signal(number)
        program.err.wait_for("drain.started")
        (folder / "gate").write_text("go")

        # then the work is done, the other message untouched, and the summary says so
        program.out.wait_for("finished")
        assert program.wait() == 0
        assert program.out.rest()[-1].split()[:3] == ["work", "1", "1"]
    assert visible_count(folder, "work") == 1


@pytest.mark.parametrize(
    "handle",
    [
        "async def work(request: Work) -> None:\n    print('started', flush=True)\n"
        "    await asyncio.Event().wait()\n",
        "def work(request: Work) -> None:\n    print('started', flush=True)\n"
        "    time.sleep(3600)\n",
    ],
    ids=["async", "blocking"],
)
def test_when_signalled_twice_then_it_stops_at_once_with_130_and_hands_the_message_back(
    write: Write, folder: Path, handle: str
) -> None:
    write("app.py", an_app(handle))
    send(folder, ADA, queue="work")
    with running("run", "app:app", *TEXT, folder=folder) as program:
        program.out.wait_for("started")

        program.signal()
        program.err.wait_for("drain.started")
        program.signal()

        assert program.wait() == 130
        assert "Stopped after" in "\n".join(program.out.rest())
    assert visible_count(folder, "work") == 1


def test_when_the_queues_are_empty_then_until_empty_ends_it(greetings: Path, folder: Path) -> None:
    send(folder, ADA, '{"name": ""}', '{"nickname": 1}', queue="greetings")

    result = pump("run", "greeting:app", "--until-empty", *TEXT, folder=folder)

    assert result.returncode == 0
    assert "Hello, Ada!" in result.stdout
    assert " ".join(result.stdout.splitlines()[-1].split()) == "greetings 3 1 0 0 2 0 0 0"
    assert "a greeting needs a name" in rejections(folder, "greetings-invalid")


def test_the_banner_names_gateway_queues_and_what_is_missing(write: Write, folder: Path) -> None:
    write("greeting.py", GREETINGS.replace('dead_letter_queue="greetings-dead",', ""))

    result = pump("run", "greeting:app", "--until-empty", *TEXT, folder=folder)

    lines = result.stdout.splitlines()
    assert lines[0].startswith("Pumphouse ")
    assert lines[0].endswith("greeting:app · local://")
    row = "greetings greetings Greet 10 none greetings-invalid"
    assert " ".join(lines[2].split()) == row
    assert "warning: subscription 'greetings' has no dead_letter_queue" in result.stderr


def test_a_secret_in_the_gateways_url_is_not_shown(greetings: Path, folder: Path) -> None:
    url = "memory://user:secret@name"

    result = pump("run", "greeting:app", "--until-empty", "-g", url, *TEXT, folder=folder)

    assert result.returncode == 0
    assert "memory://name" in result.stdout
    assert "secret" not in result.stdout + result.stderr


def test_when_piped_then_the_log_is_json_with_the_summary_in_it(write: Write, folder: Path) -> None:
    handle = """def work(request: Work) -> None:
    logging.getLogger("mine").info("working for %s", request.name)
"""
    write("app.py", an_app(handle))
    send(folder, ADA, queue="work")

    with running("run", "app:app", "--until-empty", folder=folder) as program:
        assert program.wait() == 0
        events = {event["event"]: event for event in program.err.events()}

    assert program.out.rest() == []
    own, settled = events["working for Ada"], events["message.settled"]
    assert own["subscription"] == settled["subscription"] == "work"
    assert own["message_id"] == settled["message_id"]
    assert (own["logger"], own["level"], own["attempt"]) == ("mine", "info", 1)
    assert events["run.started"]["gateway"] == "local://"
    assert events["run.ended"]["processed"] == 1
    assert events["run.ended"]["subscriptions"]["work"]["received"] == 1


def test_when_the_level_is_warning_then_deliveries_are_not_logged(
    greetings: Path, folder: Path
) -> None:
    send(folder, ADA, queue="greetings")

    result = pump("run", "greeting:app", "--until-empty", "--log-level", "warning", folder=folder)

    assert (result.stdout, result.stderr) == ("Hello, Ada!\n", "")


def test_when_concurrency_is_given_then_that_many_blocking_handlers_run_at_once(
    write: Write, folder: Path
) -> None:
    handle = """def work(request: Work) -> None:
    barrier.wait()
    print("met", flush=True)
"""
    start = "import threading; barrier = threading.Barrier(3, timeout=60)"
    write("app.py", an_app(handle, settings="concurrency=1", start=start))
    send(folder, ADA, ADA, ADA, queue="work")

    result = pump("run", "app:app", "--until-empty", "-c", "work=3", *TEXT, folder=folder)

    assert result.returncode == 0
    assert result.stdout.count("met") == 3


def test_when_a_handler_posts_through_the_app_then_it_is_the_one_that_runs(
    write: Write, folder: Path
) -> None:
    handle = """async def work(request: Work) -> None:
    print(request.name, flush=True)
    if request.name != "second":
        await app.post(Work(name="second"))
"""
    write("app.py", an_app(handle))
    gateway = ("--gateway", "local://other")
    pump("send", "work", '{"name": "first"}', "--create", *gateway, folder=folder)

    result = pump("run", "app:app", "--until-empty", *gateway, "--log-level=error", folder=folder)

    assert (result.returncode, result.stdout.split()) == (0, ["first", "second"])


def test_when_too_many_messages_are_unacceptable_then_the_exit_code_is_5(
    write: Write, folder: Path
) -> None:
    limit = "unacceptable_limit=UnacceptableLimit(count=2)"
    write("app.py", an_app("def work(request: Work) -> None: ...", settings=limit))
    send(folder, '{"nickname": 1}', '{"nickname": 2}', queue="work")

    result = pump("run", "app:app", *TEXT, folder=folder)

    assert result.returncode == 5
    assert "error: subscription 'work' met 2 unacceptable messages" in result.stderr
    assert result.stdout.splitlines()[-1].split()[:6] == ["work", "2", "0", "0", "0", "2"]


def test_when_a_queue_is_missing_then_the_exit_code_is_4(write: Write, folder: Path) -> None:
    write("app.py", an_app("def work(request: Work) -> None: ...", "make_channels='validate'"))

    result = pump("run", "app:app", folder=folder)

    assert result.returncode == 4
    assert "error: queue 'work-dead' does not exist" in result.stderr
    assert "Traceback" not in result.stderr


def test_when_the_broker_is_out_of_reach_then_the_exit_code_is_4(
    greetings: Path, write: Write, folder: Path
) -> None:
    write("queues", "not a folder")

    result = pump("run", "greeting:app", "--gateway", "local://queues", folder=folder)

    assert result.returncode == 4
    assert result.stderr.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in result.stderr


def test_when_something_unexpected_happens_then_the_exit_code_is_1_with_a_traceback(
    write: Write, folder: Path
) -> None:
    start = """
from gateways.memory import MemoryGateway
class Broken(MemoryGateway):
    async def open(self):
        raise RuntimeError("out of order")
"""
    text = an_app("def work(request: Work) -> None: ...", start=start)
    write("app.py", text.replace('App("local://")', "App(Broken())"))

    result = pump("run", "app:app", folder=folder)

    assert result.returncode == 1
    assert "Traceback" in result.stderr
    assert result.stderr.splitlines()[-1] == "error: unexpected RuntimeError: out of order"


def test_when_usage_is_wrong_then_the_exit_code_is_2(folder: Path) -> None:
    result = pump("run", folder=folder)

    assert result.returncode == 2
    assert result.stderr.startswith("error: Missing argument 'MODULE:APP'")


def test_when_a_handlers_file_shadows_ours_then_the_app_without_our_handlers_runs(
    write: Write, folder: Path
) -> None:
    path = write(
        "handlers.py", "def greet(name: str) -> None:\n    print('Hi', name, flush=True)\n"
    )
    handle = """def work(request: Work) -> None:
    import handlers
    handlers.greet(request.name)
"""
    write("app.py", an_app(handle))
    send(folder, ADA, queue="work")

    result = pump("run", "app:app", "--until-empty", *TEXT, folder=folder)

    assert result.returncode == 0
    assert "Hi Ada" in result.stdout
    assert f"warning: {path} stands in front of" in result.stderr


def test_when_a_gateways_file_shadows_ours_then_the_error_names_it(
    greetings: Path, write: Write, folder: Path
) -> None:
    path = write("gateways.py", "")

    result = pump("run", "greeting:app", folder=folder)

    assert result.returncode == 3
    assert f"error: gateway='local://': your {path} stands in front of" in result.stderr


@pytest.mark.parametrize(("end", "code"), [("SystemExit(7)", 7), ("KeyboardInterrupt", 130)])
@pytest.mark.parametrize("kind", ["async def", "def"])
def test_when_a_handler_exits_then_the_program_does_and_the_message_comes_again(
    write: Write, folder: Path, kind: str, end: str, code: int
) -> None:
    """R93: nothing is lost, and no thread of the gateway keeps the process."""
    write("app.py", an_app(f"{kind} work(request: Work) -> None:\n    raise {end}"))
    send(folder, ADA, queue="work")

    ended = pump("run", "app:app", *TEXT, folder=folder)

    assert ended.returncode == code, ended.stderr
    assert visible_count(folder, "work") == 1


@pytest.mark.parametrize(
    ("way", "code"),
    [
        ("await asyncio.create_task(interrupt())", 130),
        ("asyncio.get_running_loop().stop()", 1),
        ("[task.cancel() for task in asyncio.all_tasks()]", 1),
    ],
    ids=["interrupts in tasks", "stops the loop", "cancels all tasks"],
)
def test_when_handlers_break_the_loop_then_the_process_ends_and_nothing_is_lost(
    write: Write, folder: Path, way: str, code: int
) -> None:
    """R93: `local://` has threads, and Python would wait for them."""
    interrupt = "async def interrupt() -> None:\n    raise KeyboardInterrupt"
    handle = f"async def work(request: Work) -> None:\n    {way}\n    await asyncio.sleep(60)"
    write("app.py", an_app(handle, start=interrupt))
    send(folder, ADA, queue="work")
    send(folder, ADA, queue="work")

    ended = pump("run", "app:app", *TEXT, folder=folder)

    assert ended.returncode == code, ended.stderr
    assert visible_count(folder, "work") == 2


def test_when_a_handler_blocks_the_loop_for_ever_then_the_third_signal_ends_the_process(
    write: Write, folder: Path
) -> None:
    """R93: the loop hears of none."""
    block = "print('Blocked.', flush=True)\n    while True: time.sleep(0.01)"
    write("app.py", an_app(f"async def work(request: Work) -> None:\n    {block}"))
    send(folder, ADA, queue="work")

    with running("run", "app:app", *TEXT, folder=folder) as program:
        program.out.wait_for("Blocked.")
        for _ in range(3):
            program.signal()
            # Two of one kind are one while they are pending.
            with suppress(subprocess.TimeoutExpired):
                program.process.wait(0.5)

        assert program.wait() == -signal.SIGTERM
    assert visible_count(folder, "work") == 1


def test_when_a_task_swallows_even_its_closing_then_the_program_ends(
    write: Write, folder: Path
) -> None:
    """R93: Python would call it for ever at its own end."""
    path = write(
        "program.py",
        """
import asyncio
from pump import event_loop

async def never_end():
    while True:
        try:
            await asyncio.sleep(60)
        except BaseException:
            pass

async def main():
    task = asyncio.create_task(never_end())
    await asyncio.sleep(0)

event_loop._PATIENCE_S = 0.05
event_loop.run(main())
print("Ended.")
""",
    )

    ended = run_to_its_end(sys.executable, str(path), folder=folder)

    assert ended.returncode == 0, ended.stderr
    assert "Ended." in ended.stdout


@pytest.mark.parametrize("error", ["SystemExit(7)", "ExitsWhenAsked"])
def test_when_a_handler_exits_in_a_loop_of_the_users_then_the_gateway_is_closed_too(
    write: Write, folder: Path, error: str
) -> None:
    """R93: `asyncio.run(app.serve())` knows nothing of how our own entry points unwind."""
    start = "class ExitsWhenAsked(Exception):\n    def __str__(self):\n        raise SystemExit(7)"
    handle = f"async def work(request: Work) -> None:\n    raise {error}"
    path = write("app.py", an_app(handle, start=start) + "\nasyncio.run(app.serve())\n")
    send(folder, ADA, queue="work")

    ended = run_to_its_end(sys.executable, str(path), folder=folder)

    assert ended.returncode == 7, ended.stderr
    assert "Traceback" not in ended.stderr
    assert visible_count(folder, "work") == 1
