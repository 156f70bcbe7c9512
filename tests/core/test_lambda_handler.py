"""The function that Lambda calls: opened once, kept, thread-safe, and in time with its answer."""

from __future__ import annotations

import contextvars
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import attrs
import pytest
import structlog.testing

from gateways.memory import MemoryGateway
from pump import App, Command, Subscription
from pump.clock import SYSTEM_CLOCK
from pump.errors import BatchFailed, ConfigurationError, ConnectionFailed, UnsupportedOperation
from pump.stores.spill import MemorySpill

from .pushing_gateway import PushingGateway, a_record

user: contextvars.ContextVar[str] = contextvars.ContextVar("user", default="nobody")


class Note(Command):
    n: int


@attrs.frozen
class Remaining:
    """A context of Lambda's."""

    millis: int

    def get_remaining_time_in_millis(self) -> int:
        return self.millis


class Function:
    """An app whose handler a test scripts, as a function."""

    def __init__(self, **options: Any) -> None:
        self.gateway = PushingGateway(SYSTEM_CLOCK)
        self.app = App(self.gateway, spill=MemorySpill())
        self.app.subscribe(Subscription(queue="orders", request=Note, dead_letter_queue="dead"))
        self.lambda_handler = self.app.lambda_handler(**options)

    def __call__(self, *numbers: int, context: Any = None) -> Any:
        return self.lambda_handler({"Records": [a_record(n) for n in numbers]}, context)


@pytest.fixture
def function() -> Iterator[Function]:
    function = Function()
    yield function
    function.lambda_handler.close()


def failures(*numbers: int) -> dict[str, list[dict[str, str]]]:
    return {"batchItemFailures": [{"itemIdentifier": f"r-{n}"} for n in numbers]}


def test_when_an_event_is_handled_then_the_response_is_lambdas(function: Function) -> None:
    @function.app.handler
    async def handle(note: Note) -> None:
        if note.n == 2:
            raise RuntimeError("no")

    assert function(1, 2, 3) == failures(2)
    assert function(4) == failures()


def test_when_it_is_declared_then_nothing_is_opened(function: Function) -> None:
    """A cold start pays for the app at its first event, not when it is imported."""
    function.app.handler(_succeed)
    assert function.gateway.record.calls["open"] == 0

    function(1)
    function(2)

    assert function.gateway.record.calls["open"] == 1


def test_when_it_is_imported_then_no_sdk_is() -> None:
    program = (
        "import sys; from pump import App; App('sqs://').lambda_handler();"
        "print([m for m in sys.modules if m.split('.')[0] in ('boto3', 'botocore', 'aioboto3')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "[]"


def test_when_the_app_cannot_open_then_the_next_event_tries_again(function: Function) -> None:
    function.app.handler(_succeed)
    function.gateway.fail("open", ConnectionFailed("broker", "away"), times=1)

    with pytest.raises(ConnectionFailed):
        function(1)

    assert function(1) == failures()


def test_when_the_gateway_invokes_no_functions_then_the_first_event_says_so() -> None:
    """R76."""
    app = App(MemoryGateway(), spill=MemorySpill())
    app.subscribe(Subscription(queue="orders", request=Note))
    app.handler(_succeed)
    handler = app.lambda_handler()

    for _ in range(2):
        with pytest.raises(UnsupportedOperation, match=r"lambda_handler\(\).*sqs://"):
            handler({"Records": []})


def test_when_an_event_is_none_then_the_error_is_raised_to_lambda(function: Function) -> None:
    function.app.handler(_succeed)

    with pytest.raises(ConfigurationError, match="event"):
        function.lambda_handler("nonsense")


def test_when_failures_cannot_be_named_then_any_of_them_is_an_error() -> None:
    function = Function(partial_batches=False)

    @function.app.handler
    async def handle(note: Note) -> None:
        if note.n == 2:
            raise RuntimeError("no")

    try:
        assert function(1, 3) == failures()
        with pytest.raises(BatchFailed, match="1 of 3 message") as raised:
            function(1, 2, 3)
    finally:
        function.lambda_handler.close()
    assert raised.value.failed_ids == ("r-2",)


def test_when_many_threads_call_then_the_app_opens_once_and_each_gets_its_answer(
    function: Function,
) -> None:
    @function.app.handler
    async def handle(note: Note) -> None:
        if note.n % 2:
            raise RuntimeError("odd")

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(function, range(32)))

    assert answers == [failures(n) if n % 2 else failures() for n in range(32)]
    assert function.gateway.record.calls["open"] == 1


def test_when_the_caller_has_context_variables_then_handlers_see_them(function: Function) -> None:
    """What tracing libraries keep there belongs to this invocation."""
    seen: list[str] = []

    @function.app.handler
    async def handle(note: Note) -> None:
        seen.append(user.get())

    for name in ("ada", "bob"):
        token = user.set(name)
        function(1)
        user.reset(token)

    assert seen == ["ada", "bob"]


def test_when_the_time_is_short_then_what_waits_is_cancelled_in_time(function: Function) -> None:
    @function.app.handler
    async def handle(note: Note) -> None:
        await SYSTEM_CLOCK.sleep(0 if note.n == 1 else 3_600)

    with structlog.testing.capture_logs() as logs:
        assert function(1, 2, context=Remaining(200)) == failures(2)

    assert [each["message_id"] for each in logs if each["event"] == "lease.lost"] == ["r-2"]


def test_when_the_context_is_none_of_lambdas_then_there_is_no_deadline(function: Function) -> None:
    function.app.handler(_succeed)

    assert function(1, context={}) == failures()


def test_when_a_handler_blocks_the_loop_then_the_answer_still_comes() -> None:
    """What was done is answered for, so that it does not come again."""
    function = Function(margin=timedelta(milliseconds=200))
    released = threading.Event()

    @function.app.handler
    async def handle(note: Note) -> None:
        if note.n == 2:
            released.wait(10)

    try:
        with structlog.testing.capture_logs() as logs:
            assert function(1, 2, context=Remaining(500)) == failures(2)
        assert [each["event"] for each in logs if each["log_level"] == "error"] == [
            "invocation.expired"
        ]
        released.set()
        assert function(3, context=Remaining(60_000)) == failures()
    finally:
        released.set()
        function.lambda_handler.close()


def test_when_a_handler_exits_then_the_invocation_does(function: Function) -> None:
    """Lambda then makes another environment, and the event comes again."""

    @function.app.handler
    async def handle(note: Note) -> None:
        if note.n == 1:
            sys.exit(3)

    with pytest.raises(SystemExit):
        function(1)
    assert function(2) == failures()


def test_when_it_is_closed_then_the_next_event_opens_it_again(function: Function) -> None:
    others = portals()
    function.app.handler(_succeed)
    function(1)
    [portal] = portals() - others

    function.lambda_handler.close()
    function.lambda_handler.close()

    assert not portal.is_alive()
    assert function(2) == failures()
    assert function.gateway.record.calls["open"] == 2


def portals() -> set[threading.Thread]:
    """The event loops of open apps; other threads of this process come and go as they like."""
    return {thread for thread in threading.enumerate() if thread.name == "pump-portal"}


def test_when_the_process_is_told_to_end_then_the_app_is_closed_first() -> None:
    """Lambda sends SIGTERM to functions with an extension."""
    told: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    try:
        function = Function()
        function.app.handler(_succeed)
        function(1)

        signal.raise_signal(signal.SIGTERM)

        assert told == [signal.SIGTERM]
        assert function.lambda_handler._open is None
        signal.raise_signal(signal.SIGTERM)
        assert len(told) == 2
    finally:
        signal.signal(signal.SIGTERM, before)


def test_when_it_is_called_off_the_main_thread_then_signals_are_left_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)
    function = Function()
    function.app.handler(_succeed)

    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(function, 1).result() == failures()
        assert signal.getsignal(signal.SIGTERM) == before
        threads.submit(function.lambda_handler.close).result()


async def _succeed(note: Note) -> None: ...
