"""A run's gateway reaches throw-away queues, and no others."""

from collections.abc import AsyncIterator, Sequence

import attrs
import pytest

from gateways.memory.gateway import MemoryGateway
from gateways.s3.gateway import S3Gateway
from gateways.s3.settings import S3Settings
from pump.bench.scratch import CountsRequests, ScratchGateway, ScratchNames
from pump.capabilities import Capabilities
from pump.errors import ConnectionFailed
from pump.ports import AdminPort, Gateway
from pump.subscription import MakeChannels, QueueSpec, UnacceptableLimit, dead_letter
from pump.testing import a_message, a_subscription


class Removing(MemoryGateway):
    """One that can remove queues, or says why not."""

    def __init__(self, error: ConnectionFailed | None = None) -> None:
        super().__init__()
        self.removed: list[str] = []
        self._error = error

    async def remove_queues(self, queues: Sequence[str]) -> None:
        if self._error is not None:
            raise self._error
        self.removed += queues


class Keeping(MemoryGateway):
    """One that cannot purge."""

    @property
    def capabilities(self) -> Capabilities:
        return attrs.evolve(super().capabilities, has_purge=False)


def scratch_over(gateway: Gateway, *, keeps_options: bool = False) -> ScratchGateway:
    return ScratchGateway(gateway, ScratchNames("1a2b"), keeps_options=keeps_options)


@pytest.fixture
async def real() -> AsyncIterator[MemoryGateway]:
    """A gateway with a message in its queue of orders."""
    gateway = MemoryGateway()
    await gateway.open()
    await gateway.admin().ensure(QueueSpec(name="orders"), MakeChannels.CREATE)
    await gateway.producer("orders").send([a_message("real")])
    yield gateway
    await gateway.aclose()


async def depths(admin: AdminPort) -> dict[str, int]:
    return {stats.name: stats.visible for stats in await admin.queues()}


async def test_what_is_sent_to_a_real_queue_goes_to_one_of_its_own(real: MemoryGateway) -> None:
    scratch = scratch_over(real)

    await scratch.producer("orders").send([a_message(), a_message()])

    assert await depths(real.admin()) == {"orders": 1, "orders-bench-1a2b": 2}


async def test_what_is_received_comes_from_a_queue_of_its_own(real: MemoryGateway) -> None:
    scratch = scratch_over(real)
    await scratch.producer("orders").send([a_message("mine")])

    [delivery] = await scratch.consumer(a_subscription("orders")).receive(max_count=9, wait_s=0)

    assert delivery.message.body == b"mine"


async def test_its_caretaker_sees_and_purges_no_real_queue(real: MemoryGateway) -> None:
    scratch = scratch_over(real)
    await scratch.producer("orders").send([a_message("mine")])
    admin = scratch.admin()

    seen = await depths(admin)
    [peeked] = await admin.peek("orders")
    removed = await admin.purge("orders")

    assert (seen, peeked.body, removed) == ({"orders-bench-1a2b": 1}, b"mine", 1)
    assert (await admin.stats("orders")).name == "orders-bench-1a2b"
    assert (await real.admin().stats("orders")).visible == 1


async def test_cleaning_up_empties_its_own_queues_and_says_that_they_are_left(
    real: MemoryGateway,
) -> None:
    scratch = scratch_over(real)
    await scratch.producer("orders").send([a_message()])

    await scratch.clean_up()

    assert await depths(real.admin()) == {"orders": 1, "orders-bench-1a2b": 0}
    assert [(each.queue, each.is_empty) for each in scratch.left] == [("orders-bench-1a2b", True)]


@pytest.mark.parametrize(("sent", "is_empty"), [(0, True), (1, False)])
async def test_where_queues_cannot_be_emptied_it_says_whether_they_are(
    sent: int, is_empty: bool
) -> None:
    scratch = scratch_over(Keeping())
    await scratch.producer("orders").send([a_message() for _ in range(sent)])

    await scratch.clean_up()

    assert [each.is_empty for each in scratch.left] == [is_empty]


async def test_where_queues_can_be_removed_they_are_the_dead_letter_queue_last() -> None:
    gateway = Removing()
    scratch = scratch_over(gateway)
    for spec in scratch.subscription(a_subscription("orders")).queue_specs():
        await scratch.admin().ensure(spec, MakeChannels.CREATE)

    await scratch.clean_up()

    assert gateway.removed == ["orders-bench-1a2b", "orders-dead-bench-1a2b"]
    assert scratch.left == ()


async def test_when_the_broker_does_not_remove_then_what_is_left_says_why() -> None:
    scratch = scratch_over(Removing(ConnectionFailed("orders", "it is away")))
    await scratch.producer("orders").send([a_message()])

    await scratch.clean_up()

    [left] = scratch.left
    assert (left.queue, left.is_empty) == ("orders-bench-1a2b", False)
    assert "it is away" in left.why


async def test_before_it_was_cleaned_up_everything_that_was_made_is_left(
    real: MemoryGateway,
) -> None:
    scratch = scratch_over(real)
    await scratch.producer("orders").send([a_message()])

    [left] = scratch.left

    assert (left.queue, left.is_empty) == ("orders-bench-1a2b", False)


def test_a_subscription_has_every_queue_exchanged_and_always_one_for_dead_letters() -> None:
    scratch = scratch_over(MemoryGateway())
    declared = a_subscription(
        "orders.fifo",
        invalid_queue="orders-invalid.fifo",
        make_channels="assume",
        unacceptable_limit=UnacceptableLimit(count=1),
        options={"topic": "everything"},
    )

    made = scratch.subscription(declared)

    assert made.queue == "orders-bench-1a2b.fifo"
    assert made.dead_letter_queue == "orders-dead-bench-1a2b.fifo"
    assert made.invalid_queue == "orders-invalid-bench-1a2b.fifo"
    assert made.make_channels is MakeChannels.CREATE
    assert (made.unacceptable_limit, made.options) == (None, {})
    assert made.name == "orders.fifo"
    assert scratch.subscription(made) == made


def test_a_strategys_own_queue_is_exchanged_too() -> None:
    made = scratch_over(MemoryGateway()).subscription(
        a_subscription("orders", failure=dead_letter("bin"))
    )

    assert made.dead_letter_queue == "bin-bench-1a2b"


def test_options_are_kept_when_asked_for() -> None:
    scratch = scratch_over(MemoryGateway(), keeps_options=True)

    assert scratch.subscription(a_subscription(options={"a": 1})).options == {"a": 1}


def test_the_s3_gateway_counts_its_requests_and_the_memory_gateway_does_not() -> None:
    assert isinstance(S3Gateway(S3Settings(bucket="queues")), CountsRequests)
    assert not isinstance(MemoryGateway(), CountsRequests)
