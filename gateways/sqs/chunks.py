"""Chunks: a send cut to what one batch may hold. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

from .limits import MAX_BATCH, MAX_BYTES


class Weighed(Protocol):
    """What takes up room in a batch."""

    @property
    def size(self) -> int:
        """Its bytes, as SQS counts them."""


_W = TypeVar("_W", bound=Weighed)


def chunked(
    entries: Sequence[_W], *, max_count: int = MAX_BATCH, max_bytes: int = MAX_BYTES
) -> Iterator[Sequence[_W]]:
    """Yield the entries in their order, in runs within both limits.

    An entry that is over `max_bytes` by itself stands alone: refusing it is the sender's part.
    """
    start = size = 0
    for position, entry in enumerate(entries):
        is_full = position - start == max_count or size + entry.size > max_bytes
        if is_full and position > start:
            yield entries[start:position]
            start, size = position, 0
        size += entry.size
    if start < len(entries):
        yield entries[start:]
