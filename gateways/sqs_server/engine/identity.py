"""Identity: message ids, sequence numbers and receipts, made of numbers and never stored."""

from __future__ import annotations

import secrets
from typing import Self

# Odd, so that multiplying by it modulo a power of two maps no two numbers to one.
_SPREAD = 0x9E3779B97F4A7
_MASK = (1 << 52) - 1
_BLOCK_BITS = 8
_IN_BLOCK = (1 << _BLOCK_BITS) - 1
_LAST_DIGITS = [f"{number:02x}" for number in range(1 << _BLOCK_BITS)]
_KEY_BITS = 62
# AWS's sequence numbers have 20 digits.
_FIRST_SEQUENCE_NUMBER = 10**19


Receipt = tuple[str, str, int, int]
"""What a receipt handle says: the process that gave it out, the queue, the number of the
message, and how often that was received. A bare tuple, for there are many."""


class Identity:
    """The names of one file's messages, and of one process's receipts.

    A message id looks like a random UUID: 60 bits are the message's number, scattered but for
    the last 8, and 62 are the file's own. Messages are mostly sent and received in the order of
    their numbers, so the first half of an id is made once for 256 of them. Receipts name the
    process that gave them out, because receive counts may be forgotten in a crash and given
    again.
    """

    def __init__(self, key: int) -> None:
        self.key = key
        self.boot = secrets.token_hex(4)
        digits = f"{key | (2 << _KEY_BITS):016x}"
        self._tail = f"-{digits[:4]}-{digits[4:]}"
        self._block = -1
        self._head = ""

    @classmethod
    def new(cls) -> Self:
        """For a new file."""
        return cls(secrets.randbits(_KEY_BITS))

    def message_id(self, number: int) -> str:
        """The id of the message that was sent as this number."""
        if number >> _BLOCK_BITS != self._block:
            self._enter_block(number >> _BLOCK_BITS)
        return f"{self._head}{_LAST_DIGITS[number & _IN_BLOCK]}{self._tail}"

    def _enter_block(self, block: int) -> None:
        digits = f"{block * _SPREAD & _MASK:013x}"
        self._block = block
        self._head = f"{digits[:8]}-{digits[8:12]}-4{digits[12:]}"

    def receipt_head(self, queue: int) -> str:
        """How the receipts of a queue begin."""
        return f"{self.boot}.{receipt_name(queue)}."


def receipt_name(queue: int) -> str:
    """What a queue is called in its receipts."""
    return f"{queue:x}"


def receipt_of(head: str, seq: int, receive_count: int) -> str:
    """The receipt of one receive of one message, after the head that its queue's have."""
    # Half the time of an f-string.
    return "%s%x.%x" % (head, seq, receive_count)  # noqa: UP031


def sequence_number(seq: int) -> str:
    """What FIFO queues tell: 20 digits, growing."""
    return str(_FIRST_SEQUENCE_NUMBER + seq)


def read_receipt(text: str) -> Receipt | None:
    """What a receipt says; None when we never made it."""
    try:
        boot, queue, seq, receive_count = text.split(".")
        return boot, queue, int(seq, 16), int(receive_count, 16)
    except ValueError:
        return None
