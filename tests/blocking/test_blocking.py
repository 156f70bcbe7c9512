"""The blocking face: the same consumer and app, for programs without an event loop."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from gateways.memory import MemoryGateway
from pump import App, Command, RejectionReason, Subscription
from pump.blocking import BlockingApp, BlockingConsumer
from pump.clock import SYSTEM_CLOCK
from pump.errors import InvalidReceipt, PumpError, SessionLocked
from pump.stores.spill import MemorySpill
from tests.core.fake_sessions import SessionedGateway


class Greet(Command):
    name: str


SUBSCRIPTION = Subscription(
    queue="greetings", request=Greet, dead_letter_queue="dead", invalid_queue="invalid"
)
NOW = timedelta(milliseconds=1)


def an_app() -> App:
    app = App(MemoryGateway(), spill=MemorySpill())
    app.subscribe(SUBSCRIPTION)

    @app.handler
    async def greet(request: Greet) -> str:
        return f"Hello, {request.name}!"

    return app


@pytest.fixture
def blocking() -> Iterator[BlockingApp]:
    with BlockingApp(an_app()) as blocking:
        yield blocking


@pytest.fixture
def consumer(blocking: BlockingApp) -> Iterator[BlockingConsumer]:
    with blocking.consumer(SUBSCRIPTION) as consumer:
        yield consumer


def test_when_a_request_is_posted_then_it_is_received_and_acked(
    blocking: BlockingApp, consumer: BlockingConsumer
) -> None:
    """R1, R3, R5."""
    posted = blocking.post(Greet("Ada"))

    [delivery] = consumer.receive()
    consumer.ack(delivery)

    assert delivery.message.id == posted
    assert consumer.receive(wait=NOW) == []
    with pytest.raises(InvalidReceipt):
        consumer.ack(delivery)


def test_when_deferred_or_abandoned_then_it_comes_again(
    blocking: BlockingApp, consumer: BlockingConsumer
) -> None:
    blocking.post(Greet("Ada"))

    [first] = consumer.receive()
    consumer.extend(first, timedelta(minutes=1))
    consumer.abandon(first)
    [second] = consumer.receive()
    consumer.defer(second)
    [third] = consumer.receive()

    assert [each.attempt for each in (first, second, third)] == [1, 1, 2]


@pytest.mark.parametrize(
    ("reason", "queue"),
    [(RejectionReason.DELIVERY_ERROR, "dead"), (RejectionReason.UNACCEPTABLE, "invalid")],
)
def test_when_rejected_then_it_is_routed_as_on_the_async_path(
    blocking: BlockingApp, consumer: BlockingConsumer, reason: RejectionReason, queue: str
) -> None:
    """R25, R26, R27, R28."""
    id_ = blocking.post(Greet("Ada"))

    [delivery] = consumer.receive()
    consumer.reject(delivery, reason, "because")

    with blocking.consumer(Subscription(queue=queue, request=Greet)) as routed:
        [copy] = routed.receive()
    assert (copy.message.id, copy.message.headers["rejectionReason"]) == (id_, reason.value)
    assert consumer.receive(wait=NOW) == []


def test_when_a_session_is_accepted_then_it_is_worked_on_as_on_the_async_path() -> None:
    """R40."""
    gateway = SessionedGateway(SYSTEM_CLOCK)
    gateway.put("ada", "a1", "a2", "a3")
    app = App(gateway, spill=MemorySpill())

    with BlockingApp(app) as blocking, blocking.consumer(SUBSCRIPTION) as consumer:
        with consumer.accept_session("ada") as session:
            first, second, _ = session.receive(3)
            session.renew()
            session.ack(first)
            session.defer(second)
            with pytest.raises(SessionLocked):
                consumer.accept_session("ada")
            none = consumer.accept_session(wait=NOW)
        again = consumer.accept_session(wait=NOW)
        assert again is not None
        left = [delivery.message.id for delivery in again.receive(10)]

    assert none is None
    assert (session.id, again.id) == ("ada", "ada")
    assert left == ["a2", "a3"]


def test_when_many_threads_post_then_every_message_arrives(
    blocking: BlockingApp, consumer: BlockingConsumer
) -> None:
    """R53."""
    with ThreadPoolExecutor(8) as threads:
        ids = set(threads.map(lambda n: blocking.post(Greet(str(n))), range(200)))

    received = consumer.receive(max_count=1_000)

    assert {delivery.message.id for delivery in received} == ids


def test_when_sent_inside_the_process_then_the_handlers_answer_comes_back(
    blocking: BlockingApp,
) -> None:
    assert blocking.send(Greet("Ada")) == "Hello, Ada!"


def test_when_called_on_its_own_loop_then_it_says_so_instead_of_hanging() -> None:
    app = an_app()
    blocking = BlockingApp(app)
    refused = []

    @app.handler
    async def posting(request: Ping) -> None:
        with pytest.raises(PumpError, match="wait for itself"):
            blocking.post(Greet("Ada"))
        refused.append(request)

    with blocking:
        blocking.send(Ping())

    assert refused == [Ping()]


def test_when_closed_then_its_thread_is_gone() -> None:
    before = threading.active_count()

    with BlockingApp(an_app()):
        during = threading.active_count()

    assert during > before
    assert threading.active_count() == before


class Ping(Command):
    pass


def test_when_a_handler_exits_then_whoever_waits_for_it_does_and_the_app_goes_on() -> None:
    """An exit breaks out of the loop of the other thread; nobody may wait for it for ever."""
    app = App(MemoryGateway(), spill=MemorySpill())

    @app.handler
    async def greet(request: Greet) -> str:
        if request.name == "nobody":
            raise SystemExit(3)
        return f"Hello, {request.name}!"

    with BlockingApp(app) as blocking:
        with pytest.raises(SystemExit):
            blocking.send(Greet("nobody"))

        assert blocking.send(Greet("Ada")) == "Hello, Ada!"
