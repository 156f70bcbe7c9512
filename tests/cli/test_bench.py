"""`pump bench`: what it prints, what it refuses, and that it leaves no trace."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from .conftest import Pump, Write
from .local_queues import send, visible_count

pytestmark = pytest.mark.timeout(300)

ADA = '{"name": "Ada"}'
TWO = """
    from pump import App, Command, Subscription

    app = App("memory://")

    class Work(Command):
        name: str

    @app.handler
    async def work(request: Work) -> None:
        await app.post(Done(name=request.name))

    class Done(Command):
        name: str

    app.route(Done, "done")
    app.subscribe(Subscription(queue="work", request=Work, options={"deduplication_window": 0}))
    app.subscribe(Subscription(queue="more", request=Work))
"""
SEALED = """
    from pump import App, Command, Subscription
    from pump.crypto import Encryption, Key, KeyRing

    app = App("memory://", encryption=Encryption(KeyRing(Key.generate("2026"))))

    class Work(Command):
        name: str

    @app.handler
    async def work(request: Work) -> None:
        assert request.name == "Ada"

    app.subscribe(Subscription(queue="work", request=Work))
"""
SLOW = """
    import asyncio
    from gateways.local import LocalGateway
    from pump import App, Command, Subscription

    app = App(LocalGateway(".pumphouse/queues"))

    class Work(Command):
        name: str

    @app.handler
    async def work(request: Work) -> None:
        print("started", flush=True)
        await asyncio.sleep(WAIT_S)

    app.subscribe(Subscription(queue="work", request=Work, concurrency=1))
"""


def files_in(folder: Path) -> set[str]:
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    return {name for name in found if "__pycache__" not in name}


def as_json(result: Any) -> dict[str, Any]:
    assert result.exit_code == 0, result.stderr
    read: dict[str, Any] = json.loads(result.stdout)
    return read


# -- what it measures ------------------------------------------------------------------------


@pytest.mark.parametrize("gateway", ["memory://", "local://"])
def test_it_measures_the_pump_and_the_gateway_alone(
    pump: Pump, greetings: Path, gateway: str
) -> None:
    result = pump("bench", "greeting:app", "-n", "200", "--gateway", gateway)

    assert result.exit_code == 0
    assert "200 handled of 200 sent" in result.stdout
    for row in ("throughput", "processor", "requests", "cost", "machine", "send to handled", "p99"):
        assert row in result.stdout
    assert "Hello" not in result.output


def test_at_a_rate_latency_counts_from_when_a_message_was_due(pump: Pump, greetings: Path) -> None:
    result = pump(*("bench", "greeting:app", "--rate", "500", "-n", "50", "--gateway", "memory://"))

    assert "50 handled of 50 sent" in result.stdout
    assert "due to handled" in result.stdout
    assert "sending included" in result.stdout


def test_with_a_body_the_apps_own_handlers_run_and_print_beside_the_result(
    pump: Pump, greetings: Path
) -> None:
    result = pump("bench", "greeting:app", "--body", ADA, "-n", "5", "--yes", "--json")

    read = as_json(result)
    assert (read["handler"], read["measured"]["handled"]) == ("app", 5)
    assert result.stderr.count("Hello, Ada!") == 5


def test_an_app_that_encrypts_does_so_here_too(pump: Pump, write: Write) -> None:
    write("sealed.py", SEALED)

    read = as_json(pump("bench", "sealed:app", "--body", ADA, "-n", "5", "--yes", "--json"))

    assert (read["measured"]["handled"], read["measured"]["rejected"]) == (5, 0)


def test_a_body_may_come_from_a_file_or_a_pipe(pump: Pump, greetings: Path, write: Write) -> None:
    write("ada.json", ADA)
    call = ("bench", "greeting:app", "-n", "2", "--yes", "--json", "--body")

    assert as_json(pump(*call, "@ada.json"))["body_bytes"] == len(ADA)
    assert as_json(pump(*call, "-", input=ADA))["body_bytes"] == len(ADA)


def test_a_body_with_no_handler_is_only_carried(pump: Pump, greetings: Path) -> None:
    result = pump(
        *("bench", "greeting:app", "--body", "no JSON", "--handler", "none", "-n", "3", "--json")
    )

    read = as_json(result)
    assert (read["handler"], read["body_bytes"], read["measured"]["handled"]) == ("none", 7, 3)
    assert "Hello" not in result.stderr


def test_json_has_everything_a_machine_wants(pump: Pump, greetings: Path) -> None:
    read = as_json(pump("bench", "greeting:app", "-n", "50", "--json", "--concurrency", "3"))

    assert read["app"] == "greeting:app"
    assert read["subscription"] == "greetings"
    assert read["queue"].startswith("greetings-bench-")
    assert read["settings"]["concurrency"] == 3
    assert set(read["measured"]["latency"]) == {
        *("count", "mean_s", "p50_s", "p90_s", "p99_s", "max_s")
    }
    assert set(read["measured"]["calls"]) >= {"receives", "settles", "extends"}
    assert read["measured"]["throughput"] > 0
    assert read["measured"]["cpu_us"] > 0
    assert read["measured"]["requests"] is None
    assert (read["cost"], read["is_billed"], read["left"]) == (None, False, [])
    assert read["machine"]["cores"] >= 1
    assert all({"setting", "advice", "reason"} == set(each) for each in read["suggestions"])


def test_other_settings_can_be_tried(pump: Pump, greetings: Path) -> None:
    tried = ("--concurrency", "7", "--prefetch", "0", "--lease", "90s", "--groups", "3")

    read = as_json(pump("bench", "greeting:app", "-n", "20", "--json", *tried))

    found = read["settings"]
    assert (found["concurrency"], found["prefetch"], found["lease_s"]) == (7, 0, 90.0)


def test_messages_that_fail_are_said_with_what_was_raised_and_not_a_line_each(
    pump: Pump, greetings: Path
) -> None:
    result = pump("bench", "greeting:app", "--body", '{"name": ""}', "-n", "30", "--yes")

    assert result.exit_code == 0
    assert "0 handled of 30 sent, 30 rejected" in result.stdout
    assert "30 message(s) were rejected" in result.stderr
    assert "InvalidMessage (30)" in result.stderr
    assert "message.settled" not in result.stderr


# -- what it leaves alone ----------------------------------------------------------------------


def test_real_queues_are_not_touched_and_nothing_is_left_behind(
    pump: Pump, greetings: Path, folder: Path
) -> None:
    send(folder, ADA, queue="greetings")
    before = files_in(folder)

    result = pump("bench", "greeting:app", "--body", ADA, "-n", "20", "--yes")

    assert "20 handled of 20 sent" in result.stdout
    assert result.stderr.count("Hello, Ada!") == 20
    assert visible_count(folder, "greetings") == 1
    assert files_in(folder) == before
    assert "is left" not in result.stderr


def test_what_handlers_post_goes_to_queues_of_the_runs_own(
    pump: Pump, write: Write, folder: Path
) -> None:
    write("two.py", TWO)
    send(folder, ADA, queue="done")
    options = ("--subscription", "work", "--body", ADA, "-n", "30", "--yes", "--json")

    read = as_json(pump("bench", "two:app", "--gateway", "local://", *options))

    assert read["measured"]["handled"] == 30
    assert read["measured"]["retried"] == 0
    assert visible_count(folder, "done") == 1


def test_a_queues_options_are_left_out_unless_they_are_asked_for(pump: Pump, write: Write) -> None:
    write("two.py", TWO)
    call = ("bench", "two:app", "-s", "work", "-n", "5")

    without = pump(*call)
    kept = pump(*call, "--keep-options")

    assert "without the queue's options deduplication_window" in without.stdout
    assert "without" not in kept.stdout


def test_logging_is_as_it_was(pump: Pump, greetings: Path) -> None:
    lines = logging.getLogger("pump.delivery")
    before = lines.level

    pump("bench", "greeting:app", "-n", "1", "--gateway", "memory://")

    assert lines.level == before


# -- what it refuses ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--subscription", "orders"], 3, ["no subscription 'orders'", "there are: greetings"]),
        (["--body", '{"nme": 1}', "--yes"], 2, ["--body is not what", "name", "JSON of a Greet"]),
        (["--body", "{", "--yes"], 2, ["--body is not what", "JSON of a Greet"]),
        (["--body", "@none.json", "--yes"], 2, ["cannot read 'none.json'"]),
        (["--handler", "app", "--yes"], 2, ["need something to handle", "--body"]),
        (["--for", "0"], 2, ["no time to measure"]),
        (["--rate", "0"], 2, ["--rate"]),
        (["--gateway", "pigeon://"], 3, ["pigeon", "memory://"]),
    ],
)
def test_what_cannot_be_measured_is_said_with_the_remedy(
    pump: Pump, greetings: Path, arguments: list[str], code: int, words: list[str]
) -> None:
    result = pump("bench", "greeting:app", *arguments)

    assert result.exit_code == code
    assert result.stderr.startswith("error: ")
    assert [word for word in words if word not in result.stderr] == []
    assert "Hello" not in result.output


def test_of_several_subscriptions_one_must_be_named(pump: Pump, write: Write) -> None:
    write("two.py", TWO)

    result = pump("bench", "two:app")

    assert result.exit_code == 2
    assert "name one with --subscription: work, more" in result.stderr


def test_an_app_without_subscriptions_has_nothing_to_measure(pump: Pump, write: Write) -> None:
    write("bare.py", "from pump import App\napp = App('memory://')\n")

    result = pump("bench", "bare:app")

    assert (result.exit_code, "subscribes to nothing" in result.stderr) == (3, True)


def test_where_nobody_can_be_asked_no_handler_runs_without_yes(pump: Pump, greetings: Path) -> None:
    result = pump("bench", "greeting:app", "--body", ADA)

    assert result.exit_code == 2
    assert "there is no terminal to ask on; add --yes" in result.stderr
    assert "Hello" not in result.output


def test_where_queues_would_stay_nothing_is_sent_without_yes(
    pump: Pump, write: Write, folder: Path
) -> None:
    write("slow.py", SLOW)

    result = pump("bench", "slow:app")

    assert result.exit_code == 2
    assert "nothing was sent" in result.stderr
    assert not (folder / ".pumphouse").exists()
