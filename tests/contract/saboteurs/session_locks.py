"""Saboteurs of a session's lock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pump.clock import yield_to_loop
from pump.message import Delivery
from pump.subscription import Subscription

from ..naive import Queue
from ..naive_sessions import Lock, NaiveSession, NaiveSessions
from .base import Saboteur


class LetsManyIntoASession(Saboteur):
    class Sessions(NaiveSessions):
        def is_locked(self, queue: Queue, group: str) -> bool:
            return False

        def free(self, queue: Queue) -> Iterator[str]:
            return (each.message.group for each in queue.entries if each.message.group)


class LocksWhatIsInFlightOnly(Saboteur):
    class Sessions(NaiveSessions):
        def is_locked(self, queue: Queue, group: str) -> bool:
            return any(e.receipt is not None and e.message.group == group for e in queue.entries)


class LocksOneSessionAtATime(Saboteur):
    class Sessions(NaiveSessions):
        def is_locked(self, queue: Queue, group: str) -> bool:
            return bool(queue.locks)


class KeepsWhatAClosedSessionHeld(Saboteur):
    """Until its lease ends."""

    class Session(NaiveSession):
        async def aclose(self) -> None:
            queue = self.gateway.find(self.name)
            if self.has_lock(queue):
                self.release(queue)
                self.gateway.wake()


class KeepsTheLockOfAClosedSession(Saboteur):
    class Session(NaiveSession):
        def release(self, queue: Queue) -> None:
            pass


class CountsWhatAClosedSessionHeld(Saboteur):
    class Session(NaiveSession):
        async def aclose(self) -> None:
            for entry in self.in_hand(self.gateway.find(self.name)):
                entry.attempt += 1
            await super().aclose()


class ForgetsWhatAClosedSessionTried(Saboteur):
    class Session(NaiveSession):
        async def aclose(self) -> None:
            for entry in self.mine(self.gateway.find(self.name)):
                entry.attempt = int(entry.receipt is not None)
            await super().aclose()


class WakesNobodyAtTheEndOfASession(Saboteur):
    class Session(NaiveSession):
        async def aclose(self) -> None:
            waiters, self.gateway.waiters = self.gateway.waiters, set()
            await super().aclose()
            self.gateway.waiters = waiters


class WaitsForASessionTooLong(Saboteur):
    class Sessions(NaiveSessions):
        async def accept(
            self, subscription: Subscription, session: str | None, *, wait_s: float
        ) -> NaiveSession | None:
            return await super().accept(subscription, session, wait_s=2 * wait_s)


class RenewsNoLock(Saboteur):
    class Session(NaiveSession):
        async def renew(self) -> None:
            self.held_queue()


class RenewsTheLockAlone(Saboteur):
    """And none of the leases under it."""

    class Session(NaiveSession):
        async def renew(self) -> None:
            self.held_queue()
            self.lock.until_s = self.gateway.clock.now_s() + self.lease_s


class NeverEndsALock(Saboteur):
    class Sessions(NaiveSessions):
        def sweep(self, queue: Queue) -> None:
            pass


class HalvesALock(Saboteur):
    class Sessions(NaiveSessions):
        def open(self, queue: Queue, group: str, subscription: Subscription) -> NaiveSession:
            session = super().open(queue, group, subscription)
            session.lease_s /= 2
            session.lock.until_s = self.gateway.clock.now_s() + session.lease_s
            return session


class SleepsThroughTheEndOfALock(Saboteur):
    async def wait(self, until_s: float) -> None:
        locks = {name: queue.locks for name, queue in self.stock.items()}
        hidden = [entry for queue in self.stock.values() for entry in queue.entries]
        if any(locks.values()) and not any(entry.receipt for entry in hidden):
            await self.clock.sleep(until_s - self.clock.now_s())
        else:
            await super().wait(until_s)


class TrustsWhoLostTheLock(Saboteur):
    class Session(NaiveSession):
        def held_queue(self) -> Queue:
            return self.gateway.find(self.name)


class LetsAnOldSessionRelease(Saboteur):
    class Session(NaiveSession):
        async def aclose(self) -> None:
            queue = self.gateway.find(self.name)
            self.lock = queue.locks.get(self.lock.group, self.lock)
            await super().aclose()


class StaysLockedWhenCancelled(Saboteur):
    class Sessions(NaiveSessions):
        async def accept(
            self, subscription: Subscription, session: str | None, *, wait_s: float
        ) -> NaiveSession | None:
            accepted = await super().accept(subscription, session, wait_s=wait_s)
            for _ in range(3):
                await yield_to_loop()
            return accepted


class HidesWhatACancelledSessionReceiveTook(Saboteur):
    class Session(NaiveSession):
        async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
            received = await super().receive(max_count=max_count, wait_s=wait_s)
            for _ in range(3):
                await yield_to_loop()
            return received


class KeepsItsSessionsWhenClosed(Saboteur):
    class Sessions(NaiveSessions):
        def close(self) -> None:
            pass


class LosesWhatASessionHeldAtItsEnd(Saboteur):
    class Sessions(NaiveSessions):
        def end(self, queue: Queue, lock: Lock) -> None:
            super().end(queue, lock)
            queue.entries[:] = [
                entry
                for entry in queue.entries
                if entry.receipt is None or entry.message.group != lock.group
            ]
