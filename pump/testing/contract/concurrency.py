"""Contract: many consumers, one winner; many operations, nothing lost and nothing doubled."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import attrs
import pytest

from ...clock import yield_to_loop
from ...message import Delivery
from ...outcome import Refusal, Settlement
from ...ports import ConsumerPort, Gateway, SessionGateway
from ...subscription import MakeChannels
from ..builders import a_message, abandon, ack, defer
from .rig import Channel, ContractTests, Rig


class ConcurrencyContract(ContractTests):
    """R12, R13, R14, R43, R53."""

    @pytest.mark.parametrize("count", [2, 100, 300])
    async def test_when_many_ask_for_one_message_then_one_gets_it_and_the_others_do_not_see_it(
        self, rig: Rig, count: int
    ) -> None:
        """R12, R13, T13."""
        queue = await open_patient(rig)
        await queue.send(a_message())

        asking = [start_receive(rig, queue, wait_s=rig.tick_s) for _ in range(count)]

        [winner] = [each for answer in await answers(rig, asking) for each in answer]
        assert not await queue.settle(ack(winner))

    @pytest.mark.parametrize("count", [2, 100, 300])
    async def test_when_many_wait_and_one_message_comes_then_one_gets_it_until_its_lease_ends(
        self, rig: Rig, count: int
    ) -> None:
        """R12, R13: the others see it unavailable until then."""
        rig.needs("has_lease_expiry")
        queue = await rig.open_queue()
        came: asyncio.Queue[tuple[Delivery, float]] = asyncio.Queue()

        async def receive() -> None:
            consumer = queue.another_consumer()
            for each in await consumer.receive(max_count=1, wait_s=rig.long_s):
                came.put_nowait((each, rig.clock.now_s()))

        async def two_came() -> list[tuple[Delivery, float]]:
            return [await came.get(), await came.get()]

        for _ in range(count):
            rig.start(receive())
        await rig.settle()

        await queue.send(a_message())

        two = rig.start(two_came(), "a receipt, and another when the lease has ended")
        assert await rig.ends(two, within_s=rig.lease_s), rig.late(two)
        (first, _), (again, came_at_s) = await two
        assert (first.attempt, again.attempt) == (1, 2)
        assert first.receipt != again.receipt
        assert came_at_s >= first.lease_expires_at_s - rig.slack_s - 1e-6
        # Where time is real, a machine may be so slow that the second lease has ended, too.
        assert came.empty() or rig.is_real_time
        while not came.empty():
            earlier, (again, came_at_s) = again, came.get_nowait()
            assert again.attempt == earlier.attempt + 1
            assert came_at_s >= earlier.lease_expires_at_s - rig.slack_s - 1e-6

    async def test_when_many_ask_for_many_then_each_message_is_delivered_once(
        self, rig: Rig
    ) -> None:
        """R12, R14, R53."""
        queue = await open_patient(rig)
        sent = [a_message() for _ in range(200)]
        asking = [start_receive(rig, queue, wait_s=rig.tick_s, max_count=3) for _ in range(100)]
        await rig.settle()

        await asyncio.gather(
            *(queue.send(*sent[start : start + 20]) for start in range(0, 200, 20))
        )

        received = [each for answer in await answers(rig, asking) for each in answer]
        received += await queue.take(200)
        assert sorted(each.message.id for each in received) == sorted(each.id for each in sent)
        assert len({each.receipt for each in received}) == 200

    async def test_when_many_ack_one_delivery_then_one_of_them_succeeds(self, rig: Rig) -> None:
        """R14, R53; law 1."""
        queue = await rig.open_queue()
        await queue.send(a_message())
        [received] = await queue.receive()

        refused = await asyncio.gather(*(queue.settle(ack(received)) for _ in range(20)))

        assert sorted(len(each) for each in refused) == [0] + [1] * 19

    @pytest.mark.parametrize("seed", [1, 2, 3])
    async def test_when_everything_happens_at_once_then_nothing_is_lost_or_doubled(
        self, rig: Rig, seed: int
    ) -> None:
        """R43, R53, T13: sent = acked + remaining, whatever the mix of operations."""
        rig.needs("has_lease_expiry")
        rig.needs_seeds(seed)
        soak = Soak(rig, await rig.open_queue(), seed=seed)

        await soak.run(workers=12, steps=25)

        remaining = await soak.drain()
        assert len(soak.acked) == len(set(soak.acked))
        assert sorted([*soak.acked, *remaining]) == sorted(soak.sent)
        assert soak.shared == []


async def open_patient(rig: Rig) -> Channel:
    """A queue whose leases outlast every wait of these tests, also where brokers are slow."""
    return await rig.open_queue(lease=timedelta(seconds=20 * rig.lease_s))


async def answers(
    rig: Rig, asking: Sequence[asyncio.Task[Sequence[Delivery]]]
) -> Sequence[Sequence[Delivery]]:
    """What each got within a tick, if only that there is nothing."""
    assert await rig.ends(*asking, within_s=rig.tick_s), rig.late(*asking)
    return await asyncio.gather(*asking)


def start_receive(
    rig: Rig, queue: Channel, *, wait_s: float, max_count: int = 1
) -> asyncio.Task[Sequence[Delivery]]:
    """Let a consumer of its own begin to receive."""

    async def receive(consumer: ConsumerPort) -> Sequence[Delivery]:
        return await consumer.receive(max_count=max_count, wait_s=wait_s)

    return rig.start(receive(queue.another_consumer()))


# The soak: many workers, each doing something else with one queue, and a count at the end.


@attrs.define(eq=False)
class Soak:
    """Mixed operations on one queue; `sent`, `acked` and what `drain` finds must add up.

    `shared` names every message that was delivered while another lease on it was running.
    """

    rig: Rig
    queue: Channel
    seed: int = attrs.field(kw_only=True)
    sent: list[str] = attrs.field(factory=list)
    acked: list[str] = attrs.field(factory=list)
    shared: list[str] = attrs.field(factory=list)
    _held_until_s: dict[str, float] = attrs.field(factory=dict, init=False)

    async def run(self, *, workers: int, steps: int) -> None:
        """Let so many workers take so many steps each, while time passes."""
        work = [self.rig.start(self._work(number, steps)) for number in range(workers)]
        for _ in range(steps):
            await self.rig.clock.advance(self.rig.tick_s / 4)
        while not all(task.done() for task in work):
            await self.rig.clock.advance(self.rig.tick_s)
        await asyncio.gather(*work)

    async def drain(self) -> list[str]:
        """The ids of all messages that are left, once every lease and delay is over."""
        remaining: list[str] = []
        for _ in range(2):
            await self.rig.advance(self.rig.lease_s + self.rig.tick_s)
            remaining += [each.id for each in await self.queue.take_and_ack(len(self.sent) + 1)]
        return remaining

    async def _work(self, number: int, steps: int) -> None:
        chance = random.Random(f"{self.seed}/{number}")
        consumer = self.queue.another_consumer()
        for _ in range(steps):
            step = chance.choice(self._steps())
            await step(consumer, chance)
            await yield_to_loop()

    def _steps(self) -> list[Callable[[ConsumerPort, random.Random], Awaitable[None]]]:
        return [
            self._send,
            self._send,
            self._ack,
            self._ack,
            self._give_back,
            self._forget,
            self._extend,
            self._ack_late,
            self._cancel,
            self._look,
        ]

    async def _send(self, consumer: ConsumerPort, chance: random.Random) -> None:
        messages = [a_message() for _ in range(chance.randrange(1, 5))]
        self.sent += [each.id for each in messages]
        delay_s = chance.choice([0.0, 0.0, self.rig.tick_s])
        await self.queue.send(*messages, delay_s=delay_s)

    async def _receive(self, consumer: ConsumerPort, chance: random.Random) -> list[Delivery]:
        wait_s = chance.choice([0.0, self.rig.tick_s / 2])
        received = await consumer.receive(max_count=chance.randrange(1, 4), wait_s=wait_s)
        for each in received:
            # A lease's end, as a client knows it, is late by the time the answer took.
            held_for_s = self._held_until_s.get(each.message.id, 0.0) - self.rig.clock.now_s()
            if held_for_s > self.rig.slack_s + 1e-6:
                self.shared.append(each.message.id)
            self._held_until_s[each.message.id] = each.lease_expires_at_s
        return list(received)

    async def _settle(
        self, consumer: ConsumerPort, settlements: list[Settlement]
    ) -> Sequence[Refusal]:
        # Whatever becomes of it, from here on another one may have it.
        for settlement in settlements:
            self._held_until_s.pop(settlement.delivery.message.id, None)
        return await consumer.settle(settlements)

    async def _settle_acks(self, consumer: ConsumerPort, deliveries: list[Delivery]) -> None:
        refused = await self._settle(consumer, [ack(each) for each in deliveries])
        lost = {id(refusal.delivery) for refusal in refused}
        self.acked += [each.message.id for each in deliveries if id(each) not in lost]

    async def _ack(self, consumer: ConsumerPort, chance: random.Random) -> None:
        await self._settle_acks(consumer, await self._receive(consumer, chance))

    async def _ack_late(self, consumer: ConsumerPort, chance: random.Random) -> None:
        received = await self._receive(consumer, chance)
        for _ in range(chance.randrange(40)):
            await yield_to_loop()
        await self._settle_acks(consumer, received)

    async def _give_back(self, consumer: ConsumerPort, chance: random.Random) -> None:
        settlements: list[Settlement] = []
        for delivery in await self._receive(consumer, chance):
            delay_s = chance.choice([0.0, self.rig.tick_s])
            settlements.append(chance.choice([abandon(delivery), defer(delivery, seconds=delay_s)]))
        await self._settle(consumer, settlements)

    async def _forget(self, consumer: ConsumerPort, chance: random.Random) -> None:
        await self._receive(consumer, chance)

    async def _extend(self, consumer: ConsumerPort, chance: random.Random) -> None:
        received = await self._receive(consumer, chance)
        await consumer.extend(received, lease_s=self.rig.lease_s)
        await self._settle_acks(consumer, received)

    async def _cancel(self, consumer: ConsumerPort, chance: random.Random) -> None:
        receiving = asyncio.ensure_future(self._receive(consumer, chance))
        for _ in range(chance.randrange(6)):
            await yield_to_loop()
        receiving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._settle_acks(consumer, await receiving)

    async def _look(self, consumer: ConsumerPort, chance: random.Random) -> None:
        await self.rig.stats(self.queue.name)
        if self.rig.capabilities.has_peek:
            await self.rig.admin.peek(self.queue.name, max_count=3)


# Contract: no call of a gateway blocks the event loop, on which every other message waits.

# Below these frames it is the loop that runs, not what it runs.
_LOOP_FILES = ("/asyncio/events.py", "/asyncio/base_events.py", "/asyncio/runners.py")
# What an import reads is read once, before any message.
_IMPORT_FILES = ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>")
# A thread that is started says so at once; asyncio joins one that has ended.
_BRIEF_WAITS = (
    ("threading.py", {"start"}),
    ("asyncio/base_events.py", {"shutdown_default_executor"}),
)


class BlockingContract(ContractTests):
    """Needs blockbuster, which knows the calls that block."""

    async def test_when_its_calls_run_then_none_of_them_blocks_the_event_loop(
        self, rig: Rig
    ) -> None:
        """Port: files, sockets and sleeps belong into threads, or awaited."""
        with blocking_calls(rig.gateway, rig.may_block) as found:
            await use_every_port(rig)

        assert found == {}, told(found)


class SessionBlockingContract(ContractTests):
    """The same, of sessions."""

    async def test_when_a_session_is_used_then_none_of_its_calls_blocks_the_event_loop(
        self, rig: Rig
    ) -> None:
        """Port: as for the other calls."""
        rig.needs("has_sessions")
        with blocking_calls(rig.gateway, rig.may_block) as found:
            await use_a_session(rig)

        assert found == {}, told(found)


def told(found: Mapping[str, str]) -> str:
    """What blocked, and the line that called it."""
    calls = "; ".join(f"{call}, called by {where}" for call, where in found.items())
    return f"the event loop was blocked by {calls}; use a thread, or allow it (Rig.may_block)"


async def use_every_port(rig: Rig) -> None:
    """Call each method of the ports once, and close."""
    await rig.gateway.open()
    queue = await rig.open_queue()
    for spec in queue.subscription.queue_specs():
        await rig.admin.ensure(spec, MakeChannels.VALIDATE)
    await queue.look()
    await queue.send(*(a_message() for _ in range(4)))
    await queue.send(a_message(), delay_s=rig.tick_s)
    held = await queue.take(4)
    await queue.extend(*held, lease_s=rig.lease_s)
    for settle, delivery in zip((ack, defer, abandon), held, strict=False):
        await queue.settle(settle(delivery))
    await _look(rig, queue.name)
    await queue.consumer.aclose()
    await queue.producer.aclose()
    if rig.open_again is None:
        await rig.gateway.aclose()
    else:
        await rig.reopen()


async def _look(rig: Rig, queue: str) -> None:
    await rig.admin.queues()
    await rig.admin.stats(queue)
    if rig.capabilities.has_peek:
        await rig.admin.peek(queue)
    if rig.capabilities.has_purge:
        await rig.admin.purge(queue)


async def use_a_session(rig: Rig) -> None:
    """Call each method of a session once."""
    assert isinstance(rig.gateway, SessionGateway)
    queue = await rig.open_ordered_queue("sessions")
    await queue.send(a_message(group="g"))
    wait_s = rig.sure_s
    session = await rig.gateway.accept_session(queue.subscription, None, wait_s=wait_s)
    assert session is not None
    received = await session.receive(max_count=1, wait_s=wait_s)
    await session.renew()
    await session.settle([ack(each) for each in received])
    await session.aclose()


@contextmanager
def blocking_calls(gateway: Gateway, allowed: Collection[str] = ()) -> Iterator[dict[str, str]]:
    """Note which calls blocked the loop below the gateway's package, and where they were made.

    They are let through: an error in their place may be one that the gateway survives.
    """
    found: dict[str, str] = {}
    functions = _functions()
    own = own_folders(gateway)
    for name, function in functions.items():
        spared = [*_pairs(allowed), *function.can_block_functions]
        predicate = _noting(name, found, own, spared, function.can_block_predicate)
        function.can_block_predicate = predicate
        function.activate()
    try:
        yield found
    finally:
        for function in functions.values():
            function.deactivate()


def _functions() -> dict[str, Any]:
    """What is watched, by name: what blockbuster knows, and waiting for another thread."""
    try:
        from blockbuster import BlockBuster, BlockBusterFunction
    except ImportError:
        pytest.fail("the contract suite needs blockbuster; try: pip install 'pumphouse[testing]'")
    # A lock is not a wait unless it is contended, and an executor's queue never is for long.
    known = {
        name: each for name, each in BlockBuster().functions.items() if "lock" not in name.lower()
    }
    # `Future.result`, `Queue.get`, `Event.wait` and semaphores end in a condition's wait.
    waits = {
        name: BlockBusterFunction(
            None, name, can_block_predicate=_only_looks, can_block_functions=list(_BRIEF_WAITS)
        )
        for name in ("threading.Condition.wait", "threading.Thread.join", "os.fsync")
    }
    names = {"socket.getaddrinfo": BlockBusterFunction(None, "socket.getaddrinfo")}
    selects = {
        "select.select": BlockBusterFunction(
            None,
            "select.select",
            can_block_predicate=lambda *given: len(given) > 3 and given[3] == 0,
        )
    }
    return {**known, **waits, **names, **selects}


def _only_looks(_: object, timeout: float | None = None) -> bool:
    """Whether a wait is for no time at all: an executor asks so for an idle thread."""
    return timeout is not None and timeout <= 0


def own_folders(gateway: Gateway) -> tuple[str, ...]:
    """Where the code of a gateway's top-level packages lies."""
    names = {kind.__module__.partition(".")[0] for kind in type(gateway).__mro__}
    files = {
        (str(Path(file).parent) + "/" if Path(file).name == "__init__.py" else file)
        for name in names - {"builtins", "typing", "abc"}
        if (file := _file_of(name))
    }
    return tuple(sorted(files))


def _file_of(name: str) -> str:
    module = sys.modules.get(name)
    if module is None:
        return ""
    paths = list(getattr(module, "__path__", ()))
    return f"{paths[0]}/__init__.py" if paths else getattr(module, "__file__", None) or ""


def _pairs(allowed: Collection[str]) -> list[tuple[str, set[str]]]:
    split = (each.rpartition(":") for each in allowed)
    return [(file, {function}) for file, _, function in split]


def _noting(
    name: str,
    found: dict[str, str],
    own: tuple[str, ...],
    spared: list[tuple[str, Any]],
    is_harmless: Callable[..., bool],
) -> Callable[..., bool]:
    def note(*args: Any, **options: Any) -> bool:
        if not is_harmless(*args, **options):
            where = _caller(sys._getframe(1), own, spared)
            if where:
                found.setdefault(name, where)
        return True

    return note


def _caller(frame: FrameType | None, own: tuple[str, ...], spared: list[tuple[str, Any]]) -> str:
    """The innermost line of the gateway on the stack, empty when it is not there or spared."""
    where = ""
    while frame is not None:
        file, function = frame.f_code.co_filename.replace("\\", "/"), frame.f_code.co_name
        if file in _IMPORT_FILES or any(
            file.endswith(name) and function in functions for name, functions in spared
        ):
            return ""
        if file.endswith(_LOOP_FILES):
            return where
        if not where and file.startswith(own):
            where = f"{function} ({file}:{frame.f_lineno})"
        frame = frame.f_back
    return where
