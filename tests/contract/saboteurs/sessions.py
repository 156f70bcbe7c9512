"""Saboteurs of what a session gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pump.message import Delivery
from pump.outcome import ACK, Ack, Defer, Refusal, Settlement
from pump.subscription import Subscription

from ..naive import CHOOSY, Entry, Queue
from ..naive_sessions import NaiveSession, NaiveSessions
from .base import Saboteur


class GivesMessagesOfOtherSessions(Saboteur):
    class Session(NaiveSession):
        def mine(self, queue: Queue) -> list[Entry]:
            return sorted(queue.entries, key=lambda entry: entry.number)


class AcceptsSessionsThatDoNotExist(Saboteur):
    class Sessions(NaiveSessions):
        def free(self, queue: Queue) -> Iterator[str]:
            yield "nobody"


class AcceptsSessionsThatWait(Saboteur):
    """Their first message is put off."""

    class Sessions(NaiveSessions):
        def free(self, queue: Queue) -> Iterator[str]:
            for entry in queue.entries:
                group = entry.message.group
                if group is not None and not self.is_locked(queue, group):
                    yield group


class NeverWaitsInASession(Saboteur):
    class Session(NaiveSession):
        async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
            return await super().receive(max_count=max_count, wait_s=0.0)


class NeverWaitsForASession(Saboteur):
    class Sessions(NaiveSessions):
        async def accept(
            self, subscription: Subscription, session: str | None, *, wait_s: float
        ) -> NaiveSession | None:
            return await super().accept(subscription, session, wait_s=0.0)


class LetsConsumersIntoASession(Saboteur):
    def is_in_a_session(self, queue: Queue, entry: Entry) -> bool:
        return False

    class Sessions(NaiveSessions):
        def free(self, queue: Queue) -> Iterator[str]:
            return (group for group in super().free(queue) if not self.is_locked(queue, group))


class ReversesASession(Saboteur):
    class Session(NaiveSession):
        def mine(self, queue: Queue) -> list[Entry]:
            return super().mine(queue)[::-1]


class ReturnsAWholeSession(Saboteur):
    class Session(NaiveSession):
        async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
            return await super().receive(max_count=100, wait_s=wait_s)


class LosesAcksInASession(Saboteur):
    class Session(NaiveSession):
        async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
            return await super().settle([s for s in settlements if not isinstance(s.action, Ack)])


class AcksWhateverIsSettledInASession(Saboteur):
    class Session(NaiveSession):
        async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
            return await super().settle([Settlement(each.delivery, ACK) for each in settlements])


class LetsSuccessorsPassInASession(Saboteur):
    class Session(NaiveSession):
        def ready(self, queue: Queue) -> Iterator[Entry]:
            for entry in self.mine(queue):
                if entry.receipt is None and entry.visible_at_s <= self.gateway.clock.now_s():
                    yield entry


class IgnoresDelaysInASession(Saboteur):
    class Session(NaiveSession):
        async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
            hurried = [
                Settlement(each.delivery, Defer(0.0)) if isinstance(each.action, Defer) else each
                for each in settlements
            ]
            return await super().settle(hurried)


class PutsWhatComesBackAtTheEndOfItsSession(Saboteur):
    class Session(NaiveSession):
        async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
            queue = self.gateway.find(self.name)
            for each in settlements:
                entry = self.gateway.holder(queue, each.delivery.receipt)
                if entry is not None and isinstance(each.action, Defer):
                    entry.number = next(self.gateway.numbers)
            return await super().settle(settlements)


class CountsWhatIsAbandonedInASession(Saboteur):
    class Session(NaiveSession):
        async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
            counted = [
                each
                if isinstance(each.action, Ack | Defer)
                else Settlement(each.delivery, Defer(0.0))
                for each in settlements
            ]
            return await super().settle(counted)


class AcceptsEverySettlementInASession(Saboteur):
    class Session(NaiveSession):
        async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
            await super().settle(settlements)
            return []


class PretendsToLetOneChooseTheSession(Saboteur):
    poses_as = CHOOSY

    class Sessions(NaiveSessions):
        def check_choice(self, session: str | None) -> None:
            pass
