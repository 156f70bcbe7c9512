"""Session records: what is written down of one group while it is, or was, a session. Pure.

A record lives under a key of its own in a key-value bucket and is only ever replaced by who has
read the version before (compare and set). Its age is told by the server's clock.

| a group is | when                                             | and then                        |
|------------|--------------------------------------------------|---------------------------------|
| free       | no record, or one without an owner, or the       | whoever replaces it first has   |
|            | owner's lease is over                            | the lock                        |
| held       | it has an owner whose lease is not over          | others wait                     |
| resting    | free, but its first message is deferred          | it is not the next session, but |
|            |                                                  | can be asked for by its id      |

The owner is new with every lock, and the consumer of the session is named by it: whoever takes
the lock over deletes the consumer of the one before, and with it everything that one could ack.
The server counts deliveries per consumer, so the counts of what was not acked are kept here.
"""

from __future__ import annotations

from typing import Literal

import attrs
import msgspec


class SessionRecord(msgspec.Struct, omit_defaults=True, frozen=True):
    """One group's record. Times are the server's, in Unix seconds."""

    v: Literal[1] = 1
    owner: str = ""
    lease_s: float = 0.0
    attempts: dict[int, int] = {}
    """By place in the stream, how often a message that is still there was tried."""
    rests_until_s: float = 0.0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing worth keeping in it."""
        return not (self.owner or self.attempts or self.rests_until_s)


@attrs.frozen(kw_only=True)
class StoredRecord:
    """A record as it was found; `revision` is what a replacement must name."""

    record: SessionRecord = SessionRecord()
    revision: int = 0
    stored_at_s: float = 0.0

    def held_for_s(self, now_s: float) -> float:
        """For how long somebody holds it, if nobody renews; zero when it is free."""
        if not self.record.owner:
            return 0.0
        return max(self.stored_at_s + self.record.lease_s - now_s, 0.0)

    def rests_for_s(self, now_s: float) -> float:
        """For how long its first message is deferred."""
        return max(self.record.rests_until_s - now_s, 0.0)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(SessionRecord).decode


def pack(record: SessionRecord) -> bytes:
    """The value under the key; nothing for a record that is not worth keeping."""
    return b"" if record.is_empty else _encode(record)


def unpack(value: bytes) -> SessionRecord:
    """The record of a value; one that cannot be read locks nothing."""
    if not value:
        return SessionRecord()
    try:
        return _decode(value)
    except (msgspec.MsgspecError, ValueError):
        return SessionRecord()
