"""Strictness: one message in flight, and none before it that is not done.

A batch may come late: its number was taken before that of another which is there already. So two
may each claim the head as they see it. Each claims first and looks afterwards, and the store shows
everyone what was written before they looked: of two claims, at least one sees the other, or the
earlier message, and lets go. Both may; none is ever delivered beside another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from ...keys import QueueKeys
from ...store.driving import Steps
from ...store.objects import Entry, Found
from ..codec import Lease
from ..names import BatchId, MessageId, batch_key, batch_of, message_of
from .listing import list_all
from .tenancy import lease_in
from .writing import Gone, Undecided, read

HeadVerdict = bool | Gone | Undecided


def confirm_head(
    keys: QueueKeys,
    mine: tuple[BatchId, MessageId],
    known: Mapping[str, Lease],
    earliest_s: Callable[[], float],
) -> Steps[HeadVerdict]:
    """Whether the message that was just claimed is the head, and the only one in flight.

    `Gone` when its batch is: it was done. `known` are leases by their ETag: they are not read.
    """
    batch, message = mine
    batches = yield from list_all(keys.messages, until=batch_key(keys, batch))
    if isinstance(batches, Undecided):
        return batches
    if batch_key(keys, batch) not in {entry.key for entry in batches}:
        return Gone()
    leases = yield from list_all(keys.pending)
    if isinstance(leases, Undecided):
        return leases
    if not _is_first(keys, message, batches, leases):
        return False
    for entry in leases:
        other = message_of(keys, entry.key)
        if other is None or other == message or not entry.size:
            continue
        is_live = yield from _is_live(entry, known, earliest_s)
        if is_live is not False:
            return is_live if isinstance(is_live, Undecided) else False
    return True


def _is_first(
    keys: QueueKeys, message: MessageId, batches: Sequence[Entry], leases: Sequence[Entry]
) -> bool:
    """Whether everything before it is done, as far as it is there."""
    done: Counter[int] = Counter()
    for entry in leases:
        other = message_of(keys, entry.key)
        if other is not None and other < message and not entry.size:
            done[other.number] += 1
    for entry in batches:
        batch = batch_of(keys, entry.key)
        if batch is not None and batch.number < message.number and done[batch.number] < batch.count:
            return False
    return done[message.number] == message.place


def _is_live(
    entry: Entry, known: Mapping[str, Lease], earliest_s: Callable[[], float]
) -> Steps[bool | Undecided]:
    lease = known.get(entry.etag)
    if lease is None:
        there = yield from read(entry.key)
        if isinstance(there, Undecided):
            return there
        if not isinstance(there, Found) or not there.size:
            return False
        lease = lease_in(there)
    # What cannot be read may be held.
    return lease is None or (lease.is_held and earliest_s() < lease.expires_s)
