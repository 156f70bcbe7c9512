"""Saboteurs that declare what is not so, one field of `Capabilities` each; and what a port that
is silent about them might do.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from threading import Timer

import attrs

from pump.capabilities import Capabilities
from pump.clock import Clock, yield_to_loop
from pump.errors import MessageTooLarge
from pump.message import Delivery, Message
from pump.outcome import Refusal, Settlement
from pump.subscription import QueueSpec

from ..naive import EVERYTHING, Entry, Queue
from ..naive_ports import NaiveConsumer
from ..naive_sessions import NaiveSession
from .base import Saboteur


class SaysItIsShared(Saboteur):
    poses_as = attrs.evolve(EVERYTHING, is_shared=True)


class SaysItSpansMachines(Saboteur):
    poses_as = attrs.evolve(EVERYTHING, is_shared=True, spans_machines=True)


class SaysEveryAckMayWaitForAMinute(Saboteur):
    poses_as = attrs.evolve(EVERYTHING, settle_linger_s=60.0)


class SaysItEmulatesWhatItLacks(Saboteur):
    poses_as = attrs.evolve(EVERYTHING, has_peek=False, emulated={"has_peek"})


class SaysItsNameIsNoScheme(Saboteur):
    poses_as = attrs.evolve(EVERYTHING, gateway="My Gateway")


class SaysItIsAnotherGateway(Saboteur):
    poses_as = attrs.evolve(EVERYTHING, gateway="sqs")


class SaysADelayIsASecondAtMost(Saboteur):
    poses_as = attrs.evolve(EVERYTHING, max_delay_s=1.0)

    def check_delay(self, delay_s: float) -> None:
        pass


class TakesShorterDelaysThanItSays(Saboteur):
    def check_delay(self, delay_s: float) -> None:
        if delay_s > 1_000:
            raise ValueError("too long")


class SaysAReceiveReturnsOne(Saboteur):
    poses_as = attrs.evolve(EVERYTHING, receive_batch=1)

    def take(self, queue: Queue, max_count: int, lease_s: float) -> list[Delivery]:
        ready = [entry for entry, _ in zip(self.ready(queue), range(max_count), strict=False)]
        return [self.lease(queue, entry, lease_s) for entry in ready]


class ReturnsFewerThanItSays(Saboteur):
    def take(self, queue: Queue, max_count: int, lease_s: float) -> list[Delivery]:
        return super().take(queue, min(max_count, 9), lease_s)


class SaysARequestSettlesOne(Saboteur):
    poses_as = attrs.evolve(EVERYTHING, settle_batch=1)

    def count_requests(self, settlements: int) -> None:
        self.settle_requests += 1


class SettlesFewerThanItSays(Saboteur):
    def count_requests(self, settlements: int) -> None:
        self.settle_requests += settlements


class DefersForLongerThanItSays(Saboteur):
    poses_as = attrs.evolve(EVERYTHING, max_defer_s=100.0)

    def granted_s(self, delay_s: float) -> float:
        return delay_s


class DefersForLessThanItSays(Saboteur):
    def granted_s(self, delay_s: float) -> float:
        return min(delay_s, 1_000.0)


class HoldsForLongerThanItSays(Saboteur):
    poses_as = attrs.evolve(EVERYTHING, max_lease_s=120.0)

    def last_moment_s(self, entry: Entry) -> float:
        return float("inf")


class HoldsForLessThanItSays(Saboteur):
    def last_moment_s(self, entry: Entry) -> float:
        return entry.leased_at_s + 300.0


class TakesSmallerBodiesThanItSays(Saboteur):
    poses_as = attrs.evolve(EVERYTHING, max_body_bytes=200_000)

    def __init__(self, clock: Clock, capabilities: Capabilities) -> None:
        super().__init__(clock, capabilities)
        self.largest = 100_000

    def check_size(self, message: Message) -> None:
        if len(message.body) > self.largest:
            raise MessageTooLarge("naive", len(message.body), self.largest)


class FailsWhenTwoPoll(Saboteur):
    poses_as = attrs.evolve(EVERYTHING, max_pollers=2)

    class Consumer(NaiveConsumer):
        async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
            if wait_s > 0 and self.__dict__.get("is_polling"):
                raise ValueError("one at a time")
            self.__dict__["is_polling"] = True
            try:
                return await super().receive(max_count=max_count, wait_s=wait_s)
            finally:
                self.__dict__["is_polling"] = False


class LosesWhatSettlesAtOnce(Saboteur):
    poses_as = attrs.evolve(EVERYTHING, max_settle_calls=2)

    class Consumer(NaiveConsumer):
        async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
            self.__dict__["latest"] = settlements
            await yield_to_loop()
            return await super().settle(self.__dict__["latest"])


class HasGroupsThoughItSaysItHasNot(Saboteur):
    poses_as = attrs.evolve(EVERYTHING, has_groups=False)

    def domain(self, queue: Queue, entry: Entry) -> object:
        return entry.message.group or super().domain(queue, entry)


class DropsDuplicatesThoughItSaysItCannot(Saboteur):
    poses_as = attrs.evolve(EVERYTHING, has_deduplication=False)

    def is_duplicate(self, queue: Queue, message: Message) -> bool:
        key = message.deduplication_id
        return any(each.message.deduplication_id == key for each in queue.entries if key)


class HasSessionsThoughItSaysItHasNot(Saboteur):
    poses_as = attrs.evolve(EVERYTHING, has_sessions=False, has_session_choice=False)

    def check_offered(self, capability: str) -> None:
        if capability != "has_sessions":
            super().check_offered(capability)


class MovesDeadLettersThoughItSaysItCannot(Saboteur):
    poses_as = attrs.evolve(EVERYTHING, has_native_redrive=False)

    def moves_dead_letters(self) -> bool:
        return True


class EndsLeasesThoughItSaysItCannot(Saboteur):
    poses_as = attrs.evolve(EVERYTHING, has_lease_expiry=False)

    def ends_leases(self) -> bool:
        return True


class SaysAReceiveReturnsThousands(Saboteur):
    """More than a test can send."""

    poses_as = attrs.evolve(EVERYTHING, receive_batch=5_000)

    def take(self, queue: Queue, max_count: int, lease_s: float) -> list[Delivery]:
        return super().take(queue, min(max_count, 1_000), lease_s)


class PeeksThoughItSaysItCannot(Saboteur):
    poses_as = attrs.evolve(EVERYTHING, has_peek=False)

    def check_offered(self, capability: str) -> None:
        pass


class IgnoresUnknownOptions(Saboteur):
    def check_options(self, spec: QueueSpec) -> None:
        pass


class RaisesAtWhatItCannotRead(Saboteur):
    def take(self, queue: Queue, max_count: int, lease_s: float) -> list[Delivery]:
        for entry in self.ready(queue):
            entry.message.body.decode()
        return super().take(queue, max_count, lease_s)


class DropsWhatItCannotRead(Saboteur):
    async def store_raw(self, name: str, raw: bytes) -> None:
        pass


class StoresTimesOfItsOwnMachine(Saboteur):
    """By `Clock.now_s`, which begins anew when the machine does."""

    def reload(self) -> None:
        pass


class BlocksTheLoopInSessions(Saboteur):
    class Session(NaiveSession):
        async def renew(self) -> None:
            time.sleep(0)  # noqa: ASYNC251, TID251 - this is what it must not do
            await super().renew()


class BlocksTheLoop(Saboteur):
    class Consumer(NaiveConsumer):
        async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
            time.sleep(0)  # noqa: ASYNC251, TID251 - this is what it must not do
            return await super().settle(settlements)


class WaitsForAThread(Saboteur):
    """As one that calls a client of the other kind: `run_coroutine_threadsafe(…).result()`."""

    class Consumer(NaiveConsumer):
        async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
            answer: Future[None] = Future()
            Timer(0.001, answer.set_result, (None,)).start()
            answer.result()
            return await super().settle(settlements)
