"""Sessions: until when one may be used, and what of it is in flight.

| a session is | when                                        | and then                            |
|--------------|---------------------------------------------|-------------------------------------|
| held         | accepted or renewed, its lock's end ahead   | calls go through                    |
| resting      | held, and a message of it was deferred      | nothing is returned until it is due |
| lost         | its lock's end has passed, or came early    | every call raises `SessionLockLost` |
| closed       | its caller has closed it                    | the same                            |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from pump.clock import Clock
from pump.errors import InvalidReceipt, SessionLockLost
from pump.message import Delivery
from pump.outcome import Ack, Defer, Refusal, Settlement

from .leases import Lease


class SessionState:
    """Whether a session may be used, and whether it rests."""

    def __init__(
        self,
        queue: str,
        session: str,
        lease: Lease,
        *,
        clock: Clock,
        on_lost: Callable[[], object] | None = None,
    ) -> None:
        """`on_lost` is called once, as soon as the loss is noticed."""
        self.lease = lease
        """That of its lock."""
        self.rests_until_s = 0.0
        """Until when nothing is returned: a message was deferred, and its successors wait for it,
        also in the next session."""
        self.is_lost = False
        """Whether its lock is known to be lost or released."""
        self._queue = queue
        self._session = session
        self._clock = clock
        self._on_lost = on_lost

    @property
    def is_over(self) -> bool:
        """Whether it may not be used any more."""
        return self.is_lost or self.lease.is_over(self._clock.now_s())

    def require(self) -> None:
        """Raise unless it may be used."""
        if self.is_over:
            raise self.lose()

    def lose(self) -> SessionLockLost:
        """From now on it may not be used; what to raise."""
        was_lost, self.is_lost = self.is_lost, True
        if not was_lost and self._on_lost is not None:
            self._on_lost()
        return SessionLockLost(self._queue, self._session)

    def rest(self, delay_s: float) -> None:
        """Return nothing for so long."""
        self.rests_until_s = max(self.rests_until_s, self._clock.now_s() + delay_s)

    async def has_rested(self, until_s: float) -> bool:
        """Whether what was deferred is due, waited for until then at most."""
        now_s = self._clock.now_s()
        rests_s = self.rests_until_s - now_s
        if rests_s <= 0:
            return True
        left_s = max(until_s - now_s, 0.0)
        await self._clock.sleep(min(rests_s, left_s))
        self.require()
        return rests_s <= left_s


class HeldMessage(Struct, eq=False, kw_only=True):
    """A message of a session that is not settled."""

    place: int
    """In the order of the session."""
    receipt: str = ""
    """Under which it was returned; empty while it is here."""
    is_taken: bool = False
    """Whether a settlement of it is on its way."""


H = TypeVar("H", bound=HeldMessage)


class SortedSettlements(Struct, Generic[H], frozen=True):
    """What the settlements of a session ask for. Those in `done` and `last` are taken."""

    refusals: list[Refusal]
    done: list[tuple[Delivery, H]]
    """Acked."""
    last: list[tuple[Settlement, H]]
    """Deferred at their last attempt."""
    again: list[tuple[Settlement, H]]
    """They are here again."""


class SessionHand(Generic[H]):
    """What a session has received and not settled, in order, where the broker gives its messages to
    the holder of the lock alone: what comes again stays here, before its successors. Pure.

    | a message is | when                          | and then                               |
    |--------------|-------------------------------|----------------------------------------|
    | here         | it came, or is to come again  | returned by the next receive           |
    | out          | it was returned               | its receipt is valid                   |
    | taken        | a settlement is on its way    | a second settlement is refused         |
    | gone         | it was acked, or moved away   | its receipt is valid no longer         |
    """

    def __init__(self) -> None:
        self._held: dict[int, H] = {}
        self._out: dict[str, H] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[H]:
        return iter(list(self._held.values()))

    def __contains__(self, message: HeldMessage) -> bool:
        return message.place in self._held

    @property
    def has_ready(self) -> bool:
        """Whether something is here."""
        return len(self._out) < len(self._held)

    def add(self, message: H) -> None:
        """It came; one that came before is not entered twice."""
        is_late = bool(self._held) and message.place < next(reversed(self._held))
        self._held.setdefault(message.place, message)
        if is_late:
            self._held = dict(sorted(self._held.items()))

    def ready(self) -> list[H]:
        """What is here, in order."""
        return [each for each in self._held.values() if not each.receipt]

    def give_out(self, message: H, receipt: str) -> None:
        """It is returned, under this receipt."""
        message.receipt = receipt
        self._out[receipt] = message

    def take_back(self, message: H) -> None:
        """It is here again."""
        self._out.pop(message.receipt, None)
        message.receipt = ""

    def drop(self, message: H) -> None:
        """It is gone."""
        self._held.pop(message.place, None)
        self._out.pop(message.receipt, None)

    def find(self, delivery: Delivery) -> H | None:
        """What was returned as this delivery, None when it is out no longer, or taken."""
        message = self._out.get(delivery.receipt)
        return None if message is None or message.is_taken else message

    def sort(
        self, settlements: Sequence[Settlement], *, queue: str, is_last: Callable[[H], bool]
    ) -> SortedSettlements[H]:
        """Take what is to be settled by the broker, and take back what is to come again."""
        found: SortedSettlements[H] = SortedSettlements([], [], [], [])
        for each in settlements:
            delivery, action = each.delivery, each.action
            message = self.find(delivery)
            if message is None:
                error = InvalidReceipt(queue, delivery.receipt)
                found.refusals.append(Refusal(delivery, error))
            elif isinstance(action, Ack):
                message.is_taken = True
                found.done.append((delivery, message))
            elif isinstance(action, Defer) and is_last(message):
                message.is_taken = True
                found.last.append((each, message))
            else:
                self.take_back(message)
                found.again.append((each, message))
        return found
