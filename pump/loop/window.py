"""Window: credits say how many messages may be in hand.

A credit is taken before a receive asks for a message and given back once the message is
settled (or did not come). `in_hand` never exceeds the limit that was in force when it was
taken; after a resize downwards the window waits until enough has come back.
"""

from __future__ import annotations


class Window:
    """Counts messages asked for or held, against a limit. Pure."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._in_hand = 0

    @property
    def limit(self) -> int:
        """The most messages in hand."""
        return self._limit

    @property
    def in_hand(self) -> int:
        """Credits out: messages held, or asked for."""
        return self._in_hand

    @property
    def credit(self) -> int:
        """How many more may be asked for."""
        return max(0, self._limit - self._in_hand)

    def take(self, count: int) -> None:
        """Take credits; only what `credit` offers can be had."""
        if not 0 < count <= self.credit:
            raise ValueError(f"{count} credits asked for, {self.credit} to be had")
        self._in_hand += count

    def give(self, count: int) -> None:
        """Give credits back."""
        if not 0 <= count <= self._in_hand:
            raise ValueError(f"{count} credits given back, {self._in_hand} are out")
        self._in_hand -= count

    def resize(self, limit: int) -> None:
        """Change the limit; what is in hand stays in hand."""
        self._limit = limit

    def request_size(self, *, batch: int, waiting: int) -> int:
        """How many to ask for now: a full batch, or whatever there is room for when no
        received message waits for a worker, else nothing.

        Asking for one message each time one is settled would cost a request a message.
        """
        credit = self.credit
        if credit >= batch:
            return batch
        return credit if waiting == 0 else 0
