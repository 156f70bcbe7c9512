"""Saboteurs of administration and of the gateway's own life."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from pump.message import Message
from pump.ports import QueueStats
from pump.subscription import MakeChannels, QueueSpec

from ..naive import EVERYTHING, Queue
from ..naive_ports import NaiveAdmin
from .base import Saboteur


class MakesQueuesWithAGhostInside(Saboteur):
    def stats(self, queue: Queue) -> QueueStats:
        stats = super().stats(queue)
        return stats if queue.entries else attrs.evolve(stats, visible=1)


class ReplacesAQueueThatExists(Saboteur):
    def create(self, spec: QueueSpec) -> None:
        self.stock.pop(spec.name, None)
        super().create(spec)


class MakesWhatIsAssumed(Saboteur):
    class Admin(NaiveAdmin):
        async def ensure(self, spec: QueueSpec, make: MakeChannels) -> None:
            created = MakeChannels.CREATE if make is MakeChannels.ASSUME else make
            await super().ensure(spec, created)


class MakesWhatIsValidated(Saboteur):
    class Admin(NaiveAdmin):
        async def ensure(self, spec: QueueSpec, make: MakeChannels) -> None:
            if make is MakeChannels.VALIDATE:
                self.gateway.create(spec)
            await super().ensure(spec, make)


class FindsEveryQueueValid(Saboteur):
    class Admin(NaiveAdmin):
        async def ensure(self, spec: QueueSpec, make: MakeChannels) -> None:
            if make is not MakeChannels.VALIDATE:
                await super().ensure(spec, make)


class FindsNoQueueValid(Saboteur):
    def difference(self, queue: Queue, spec: QueueSpec) -> str:
        return "something"


class IgnoresOrderWhenValidating(Saboteur):
    def difference(self, queue: Queue, spec: QueueSpec) -> str:
        return super().difference(queue, attrs.evolve(spec, ordering=queue.spec.ordering))


class ListsQueuesInAnyOrder(Saboteur):
    class Admin(NaiveAdmin):
        async def queues(self) -> Sequence[QueueStats]:
            return [*reversed(await super().queues())]


class TellsOfAnyQueue(Saboteur):
    class Admin(NaiveAdmin):
        async def stats(self, queue: str) -> QueueStats:
            return next(iter(await self.queues()), QueueStats(name=queue, visible=0, in_flight=0))


class WritesNamesAsUtf8(Saboteur):
    class Admin(NaiveAdmin):
        async def stats(self, queue: str) -> QueueStats:
            queue.encode()
            return await super().stats(queue)


class CountsWhatIsInFlightAsVisible(Saboteur):
    def stats(self, queue: Queue) -> QueueStats:
        stats = super().stats(queue)
        return attrs.evolve(stats, visible=stats.visible + stats.in_flight, in_flight=0)


class CountsWithoutLookingAtTheClock(Saboteur):
    class Admin(NaiveAdmin):
        async def queues(self) -> Sequence[QueueStats]:
            stock = self.gateway.stock
            return [self.gateway.stats(stock[name]) for name in sorted(stock)]


class TellsTheAgeOfTheNewest(Saboteur):
    def stats(self, queue: Queue) -> QueueStats:
        newest_s = max((entry.sent_at_s for entry in queue.entries), default=0.0)
        return attrs.evolve(super().stats(queue), oldest_age_s=self.clock.now_s() - newest_s)


class LeasesWhatItPeeksAt(Saboteur):
    def show(self, queue: Queue) -> Iterator[Message]:
        return (each.message for each in self.take(queue, 10, 30.0))


class CountsWhatItPeeksAt(Saboteur):
    def show(self, queue: Queue) -> Iterator[Message]:
        for entry in queue.entries:
            entry.attempt += 1
        return super().show(queue)


class ShowsMoreThanAskedFor(Saboteur):
    class Admin(NaiveAdmin):
        async def peek(self, queue: str, *, max_count: int = 10) -> Sequence[Message]:
            return await super().peek(queue, max_count=10)


class MakesTheQueueItPeeksAt(Saboteur):
    class Admin(NaiveAdmin):
        async def peek(self, queue: str, *, max_count: int = 10) -> Sequence[Message]:
            self.gateway.create(QueueSpec(name=queue))
            return await super().peek(queue, max_count=max_count)


class MakesTheQueueItPurges(Saboteur):
    class Admin(NaiveAdmin):
        async def purge(self, queue: str) -> int:
            self.gateway.create(QueueSpec(name=queue))
            return await super().purge(queue)


class PurgesWhatIsVisibleOnly(Saboteur):
    def empty(self, queue: Queue) -> int:
        count = len(queue.entries)
        queue.entries[:] = [each for each in queue.entries if not self.is_visible(each)]
        return count


class LiesAboutWhatItPurged(Saboteur):
    def empty(self, queue: Queue) -> int:
        super().empty(queue)
        return 0


class PurgesTheQueueItself(Saboteur):
    def empty(self, queue: Queue) -> int:
        del self.stock[queue.spec.name]
        return len(queue.entries)


class HasNoName(Saboteur):
    poses_as = attrs.evolve(EVERYTHING, gateway="")


class ForgetsEverythingWhenOpened(Saboteur):
    async def open(self) -> None:
        self.stock.clear()


class FailsToCloseTwice(Saboteur):
    is_closed = False

    async def aclose(self) -> None:
        if self.is_closed:
            raise RuntimeError("closed")
        self.is_closed = True
