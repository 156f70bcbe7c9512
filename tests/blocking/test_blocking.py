"""The blocking face: the same consumer and app, for programs without an event loop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from gateways.memory import MemoryGateway
from pump import App, Command, RejectionReason, Subscription
from pump.blocking import BlockingApp, BlockingConsumer
from pump.clock import SYSTEM_CLOCK
from pump.errors import InvalidReceipt, PumpError, SessionLocked
from pump.outcome import Fate
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
    others = portals()

    with BlockingApp(an_app()):
        [portal] = portals() - others

    assert not portal.is_alive()


def portals() -> set[threading.Thread]:
    """The event loops of open apps; other threads of this process come and go as they like."""
    return {thread for thread in threading.enumerate() if thread.name == "pump-portal"}


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


def post_all(app: App, *names: str) -> list[str]:
    with BlockingApp(app) as blocking:
        return [blocking.post(Greet(name)) for name in names]


def a_file_app(folder: Path) -> App:
    app = App(f"local://{folder / 'queues.db'}", spill=MemorySpill())
    app.subscribe(SUBSCRIPTION)
    return app


def test_when_a_blocking_consumer_is_iterated_then_it_reads_like_any_client(
    tmp_path: Path,
) -> None:
    """R3, R53: opened, iterated, settled and closed without a word of asyncio."""
    app = a_file_app(tmp_path)
    posted = post_all(app, "Ada", "Bob", "Cy")

    seen, routed = [], []
    with app.blocking_consumer(SUBSCRIPTION) as consumer:
        for delivery in consumer.deliveries(idle=NOW):
            request = consumer.read(delivery)
            if request.name == "Bob":
                routed.append(consumer.reject(delivery, "unacceptable", "who?"))
            else:
                consumer.ack(delivery)
            seen.append((delivery.message.id, request.name))

        assert consumer.receive(wait=NOW) == []
    assert seen == list(zip(posted, ["Ada", "Bob", "Cy"], strict=True))
    assert [(each.fate, each.destination) for each in routed] == [(Fate.ROUTED, "invalid")]
    assert consumer.subscription is SUBSCRIPTION


def test_when_an_iteration_is_left_early_then_what_it_had_fetched_is_handed_back(
    blocking: BlockingApp, consumer: BlockingConsumer
) -> None:
    """R8: at once and uncounted; what was given out stays with the caller."""
    for name in ("Ada", "Bob", "Cy"):
        blocking.post(Greet(name))

    given_out = []
    for delivery in consumer.deliveries(max_count=3):
        given_out.append(delivery)
        break

    rest = consumer.receive(10)
    assert [consumer.read(each).name for each in rest] == ["Bob", "Cy"]
    assert [each.attempt for each in rest] == [1, 1]
    consumer.ack(given_out[0])


def test_when_the_consumer_closes_during_an_iteration_then_the_loop_ends(
    blocking: BlockingApp,
) -> None:
    """Also when another thread closes it, and with what was fetched handed back."""
    blocking.post(Greet("Ada"))
    seen = []
    waiting = threading.Event()

    with blocking.consumer(SUBSCRIPTION) as consumer:

        def consume() -> None:
            for delivery in consumer:
                consumer.ack(delivery)
                seen.append(consumer.read(delivery).name)
                waiting.set()

        worker = threading.Thread(target=consume)
        worker.start()
        assert waiting.wait(20)
        consumer.close()
        worker.join(20)
        assert not worker.is_alive()

        consumer.close()
        assert list(consumer) == []
    assert seen == ["Ada"]


def test_when_an_iteration_outlives_its_consumer_then_it_is_over(blocking: BlockingApp) -> None:
    for name in ("Ada", "Bob"):
        blocking.post(Greet(name))
    with blocking.consumer(SUBSCRIPTION) as consumer:
        deliveries = consumer.deliveries(max_count=2)
        consumer.ack(next(deliveries))

    assert list(deliveries) == []

    with blocking.consumer(SUBSCRIPTION) as another:
        [rest] = another.receive()
    assert rest.attempt == 1


def test_when_ctrl_c_is_pressed_while_it_waits_then_the_loop_ends_and_nothing_stays_hidden(
    blocking: BlockingApp,
) -> None:
    """R4: the receive is cancelled before the interrupt goes on."""
    main_thread = threading.main_thread().ident
    interrupt = threading.Timer(0.2, signal.pthread_kill, [main_thread, signal.SIGINT])

    def consume() -> None:
        with blocking.consumer(SUBSCRIPTION) as consumer:
            interrupt.start()
            for _ in consumer:
                raise AssertionError("nothing was sent")

    with pytest.raises(KeyboardInterrupt):
        consume()

    blocking.post(Greet("Ada"))
    with blocking.consumer(SUBSCRIPTION) as another:
        assert len(another.receive()) == 1


def test_when_several_blocking_consumers_are_open_then_they_share_one_loop() -> None:
    """R53: the first opens the app, the last one closes it; then it may be opened again."""
    app = an_app()
    others = portals()

    for _ in range(2):
        with app.blocking_consumer(SUBSCRIPTION) as one:
            with app.blocking_consumer(SUBSCRIPTION) as other:
                assert len(portals() - others) == 1
                assert other.receive(wait=NOW) == []
            assert one.receive(wait=NOW) == []
        assert portals() - others == set()


async def test_when_an_event_loop_runs_then_a_blocking_consumer_says_what_to_use() -> None:
    with (
        pytest.raises(PumpError, match=r"app\.consumer"),
        an_app().blocking_consumer(SUBSCRIPTION),
    ):
        pass


def test_when_the_app_has_closed_then_a_call_says_so() -> None:
    with an_app().blocking_consumer(SUBSCRIPTION) as consumer:
        pass

    with pytest.raises(PumpError, match="closed"):
        consumer.receive()
