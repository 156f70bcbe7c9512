"""The protocols of leases as steps: pure, and left at any request without harm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import attrs

from pump.errors import GatewayError, MappingError, Throttled

from ..layout import QueueKeys
from ..store.objects import (
    ConditionFailed,
    FoundObject,
    Get,
    List,
    ListedObject,
    Missing,
    Page,
    Put,
    Remove,
    RemovedObject,
    Same,
    Steps,
    Unknown,
    WriteConflict,
    WrittenObject,
)
from .codec import (
    DONE,
    BatchContent,
    BatchId,
    LeaseObject,
    MessageId,
    Tail,
    batch_key,
    batch_of,
    decode_batch,
    decode_lease,
    decode_tail,
    encode_lease,
    encode_tail,
    message_of,
)

# Lease handles: a message is claimed, kept and let go by single conditional writes of its lease.
#
# | from             | by          | write                         | to                      |
# |------------------|-------------|-------------------------------|-------------------------|
# | no lease         | claim_fresh | is_new                        | held, attempt 1         |
# | over             | reclaim     | If-Match, fence + 1           | held, attempt + 1       |
# | held             | renew       | If-Match, the same token      | held, a later end       |
# | held             | hand_back   | If-Match, no owner            | waiting, then over      |
# | held             | ack         | If-Match, an empty body       | done, for good          |
#
# A lease is over when it has expired, or when it has no owner and its delay has passed. Each
# write of a lease has a nonce of its own in its body.


@attrs.frozen(kw_only=True)
class LeaseHandle:
    """A lease that is held: the version it was granted by, and its token."""

    key: str
    etag: str
    lease: LeaseObject
    is_doubtful: bool = False
    """Whether an earlier write of ours got no answer, so that another version may be ours."""


def claim_fresh(key: str, lease: LeaseObject) -> Steps[WriteResult]:
    """Claim a message that was never claimed. Won, as any claim, it must be confirmed
    (`confirm`).
    """
    return (yield from write(Put(key, encode_lease(lease), is_new=True), _has_nonce(lease)))


def reclaim(key: str, etag: str, lease: LeaseObject) -> Steps[WriteResult]:
    """Claim a message whose lease is over, in the version that said so."""
    return (yield from write(Put(key, encode_lease(lease), if_match=etag), _has_nonce(lease)))


def renew(handle: LeaseHandle, lease: LeaseObject) -> Steps[WriteResult]:
    """Replace the lease by a later one of the same token."""
    return (yield from _replace(handle, encode_lease(lease), _has_nonce(lease)))


def hand_back(handle: LeaseHandle, lease: LeaseObject) -> Steps[WriteResult]:
    """Replace the lease by one without an owner.

    `Gone`, or `Lost` after a look: an earlier write of ours had handed it back, or it is lost;
    either way it is not ours, which is what was asked for.
    """
    return (yield from _replace(handle, encode_lease(lease), _has_nonce(lease)))


def ack(handle: LeaseHandle) -> Steps[WriteResult]:
    """Mark the message as done.

    `Gone`, or `Lost` after a look, but not to a later claim: our own write that got no answer has
    done it, if our lease is not over by the local clock, for until then no other may write here.
    Afterwards it may have been another's, and counts as lost.
    """
    return (yield from _replace(handle, DONE, lambda _: False))


def _replace(
    handle: LeaseHandle, body: bytes, is_ours: Callable[[FoundObject], bool]
) -> Steps[WriteResult]:
    """Write over our own lease; over the version that a doubtful write of ours has left, too."""
    etag, is_doubtful = handle.etag, handle.is_doubtful
    error: GatewayError = Throttled(handle.key)
    for _ in range(MAX_TRIES):
        put = Put(handle.key, body, if_match=etag)
        result = yield from write(put, is_ours, is_doubtful=is_doubtful)
        found = result.found if isinstance(result, Lost) else None
        if found is None or not _has_token(found, handle.lease.token):
            return result
        etag, is_doubtful = found.etag, True
    return Undecided(error)


def _has_nonce(lease: LeaseObject) -> Callable[[FoundObject], bool]:
    def has_nonce(there: FoundObject) -> bool:
        known = lease_in(there)
        return known is not None and known.nonce == lease.nonce

    return has_nonce


def _has_token(there: FoundObject, token: str) -> bool:
    known = lease_in(there)
    return known is not None and known.token == token


def lease_in(there: FoundObject) -> LeaseObject | None:
    """The lease in an object; None when its message is done, or it cannot be read."""
    try:
        return decode_lease(there.body) if there.size else None
    except MappingError:
        return None


# Writing: a conditional write that ends in a decision, whatever became of its answer.
#
# | reply                          | what it means                  | what follows                 |
# |--------------------------------|--------------------------------|------------------------------|
# | `WrittenObject`                | decided, for us                | the end                      |
# | `ConditionFailed`, no doubt    | decided, for another           | the end: `Lost`, without a   |
# |                                |                                | look                         |
# | `ConditionFailed`, may be ours | perhaps our own write is there | read back                    |
# | `WriteConflict`                | nothing is decided             | the same write again, in     |
# |                                |                                | doubt                        |
# |                                |                                | if it was made more than     |
# |                                |                                | once                         |
# | `Unknown`                      | it happened, or may happen yet | read back, and in doubt      |
#
# Read back, our own body is a decision for us, another's one for another. The version we wanted to
# replace means that nothing has happened so far: the same write again, which at most one of the two
# can win.

MAX_TRIES = 4
"""How often a request is made before a protocol gives up; the transport below repeats its own."""


@attrs.frozen
class Lost:
    """Another's version is there; `found` when it had to be looked at."""

    found: FoundObject | None = None


@attrs.frozen
class Gone:
    """What was in our way, or what we wanted to replace, was removed."""


@attrs.frozen
class Undecided:
    """The store did not say: the write may have happened, or happen yet."""

    error: GatewayError


WriteResult = WrittenObject | Lost | Gone | Undecided


def write(
    put: Put,
    is_ours: Callable[[FoundObject], bool],
    *,
    is_doubtful: bool = False,
    witness: str | None = None,
) -> Steps[WriteResult]:
    """Write on a condition and say which write won.

    `is_doubtful` when an earlier write of ours may be what stands there. `witness` is an object
    that is there only if what we write has been: with it, an answer that was lost is not taken for
    a write that was.
    """
    error: GatewayError = Throttled(put.key)
    for _ in range(MAX_TRIES):
        reply = yield put
        if isinstance(reply, WrittenObject):
            return reply
        if isinstance(reply, WriteConflict):
            is_doubtful = is_doubtful or reply.may_be_ours
            continue
        if isinstance(reply, Unknown):
            is_doubtful, error = True, reply.error
        elif not (is_doubtful or reply.may_be_ours):
            return Lost()
        result = _judge(put, reply, (yield from read(put.key)), is_ours)
        if result is not None:
            return result
        if witness is not None:
            seen = yield from read(witness, has_body=False)
            if isinstance(seen, FoundObject):
                return Gone()
    return Undecided(error)


def read(key: str, *, unless: str | None = None, has_body: bool = True) -> Steps[Reading]:
    """Read an object, as often as it takes to get an answer."""
    error: GatewayError = Throttled(key)
    for _ in range(MAX_TRIES):
        reply = yield Get(key, unless, has_body)
        if isinstance(reply, FoundObject | Missing | Same):
            return reply
        if isinstance(reply, Unknown):
            error = reply.error
    return Undecided(error)


Reading = FoundObject | Missing | Same | Undecided


def _judge(
    put: Put,
    reply: ConditionFailed | Unknown,
    there: Reading,
    is_ours: Callable[[FoundObject], bool],
) -> WriteResult | None:
    """Which write has won, by what is there; None while undecided."""
    match there:
        case Undecided():
            return there
        case FoundObject() if is_ours(there):
            return WrittenObject(there.etag)
        case FoundObject() if there.etag == put.if_match:
            return None
        case FoundObject():
            return Lost(there)
        case _:
            # Nothing is there. A new object whose write got no answer may just not be there yet.
            return None if put.is_new and isinstance(reply, Unknown) else Gone()


# Batches: written once under a number of their own, and removed when all in them is done.
#
# The batch goes at once, with the bodies in it; the ends of its leases, which are empty, stay for
# as long as a late copy of the batch's own write may still arrive: it would bring back messages of
# which every reader sees that they are done. Then the batch is removed again, and after it the
# leases.

_MAX_KEYS = 1000
"""The most one removal takes."""


def put_batch(key: str, body: bytes, first_lease: str) -> Steps[bool | Undecided]:
    """Write a batch under a number that was taken for it. False when there is another one of
    that number, because the tail was lost: take a new number.

    A batch that is not there, whose first lease is, was written and is done: not written again.
    """
    put = Put(key, body, is_new=True)
    result = yield from write(
        put, lambda there: there.body == body, is_doubtful=True, witness=first_lease
    )
    match result:
        case WrittenObject() | Gone():
            # The number is ours: what was there and is gone was this batch, all of it done.
            return True
        case Lost():
            return False
        case Undecided():
            return result


def read_batch(key: str) -> Steps[BatchContent | Missing | Undecided]:
    """What a batch holds; `Missing` when all of it is done. `MappingError` when unreadable."""
    there = yield from read(key)
    if isinstance(there, FoundObject):
        return decode_batch(there.body)
    return there if isinstance(there, Undecided) else Missing()


def confirm(key: str) -> Steps[bool | Undecided]:
    """Whether the leases that were won before this are of messages that are not done.

    A batch is removed before its leases: while it is there, no lease of it was ever removed, so
    a lease that was not there was never there, and the first of each message is the first ever.
    """
    there = yield from read(key, has_body=False)
    return there if isinstance(there, Undecided) else isinstance(there, FoundObject)


def clean_up(batches: Sequence[str], leases: Sequence[str]) -> Steps[bool]:
    """Remove batches of which all is done, then their leases, in this order; whether it is all
    gone. May be done by any process, again, and left half done.
    """
    if not (yield from remove_all(batches)):
        return False
    return (yield from remove_all(leases))


def remove_all(keys: Sequence[str]) -> Steps[bool]:
    """Remove objects that a decision has made worthless; whether all are gone."""
    is_done = True
    for start in range(0, len(keys), _MAX_KEYS):
        reply = yield Remove(keys[start : start + _MAX_KEYS])
        is_done = is_done and isinstance(reply, RemovedObject)
    return is_done


# Listing: what is there, page by page, and what a lease says.

PAGE = 1000
"""The most one listing returns."""


def list_page(prefix: str, after: str = "", max_count: int = PAGE) -> Steps[Page | Undecided]:
    """One page of keys, as often asked for as it takes to get an answer."""
    error: GatewayError = Throttled(prefix)
    for _ in range(MAX_TRIES):
        reply = yield List(prefix, after, max_count)
        if isinstance(reply, Page):
            return reply
        if isinstance(reply, Unknown):
            error = reply.error
    return Undecided(error)


def list_all(prefix: str, *, until: str | None = None) -> Steps[list[ListedObject] | Undecided]:
    """All keys below a prefix, or those up to and with the page that holds a key."""
    entries: list[ListedObject] = []
    after = ""
    while True:
        page = yield from list_page(prefix, after)
        if isinstance(page, Undecided):
            return page
        entries += page.entries
        if page.is_last or not page.entries:
            return entries
        after = entries[-1].key
        if until is not None and after >= until:
            return entries


def survey(keys: QueueKeys) -> Steps[tuple[list[ListedObject], list[ListedObject]] | Undecided]:
    """All batches, then all leases. A lease without a batch here is of one that came between."""
    batches = yield from list_all(keys.messages)
    if isinstance(batches, Undecided):
        return batches
    leases = yield from list_all(keys.pending)
    return leases if isinstance(leases, Undecided) else (batches, leases)


# Numbers: each batch gets one of its own, greater than all that were taken before.

_MAX_ROUNDS = 50
"""A sender that loses a round has seen another win it: only many senders get this far."""


@attrs.frozen
class KnownTail:
    """The tail as this process last saw it: saves reading it."""

    next: int
    etag: str | None
    """None when there is none yet."""


@attrs.frozen
class NumberRange:
    """Numbers from `first` on are the caller's, and the tail as it is now."""

    first: int
    tail: KnownTail


def take_numbers(
    keys: QueueKeys, count: int, known: KnownTail | None, new_nonce: Callable[[], str]
) -> Steps[NumberRange | Undecided]:
    """Take so many numbers in a row. Numbers that are taken and never used do no harm."""
    error: GatewayError = Throttled(keys.tail)
    for _ in range(_MAX_ROUNDS):
        if known is None:
            there = yield from _read_tail(keys)
            if isinstance(there, Undecided):
                return there
            known = there
        body = encode_tail(Tail(known.next + count, new_nonce()))
        put = Put(keys.tail, body, if_match=known.etag, is_new=known.etag is None)
        result = yield from write(put, partial(_is_same, body))
        match result:
            case WrittenObject(etag=etag):
                return NumberRange(known.next, KnownTail(known.next + count, etag))
            case Undecided():
                return result
            case Lost(found=FoundObject() as found):
                known = _tail(found)
            case _:
                known = None
    return Undecided(error)


def _read_tail(keys: QueueKeys) -> Steps[KnownTail | Undecided]:
    there = yield from read(keys.tail)
    if isinstance(there, FoundObject):
        return _tail(there)
    if isinstance(there, Undecided):
        return there
    # No number was ever taken, or the tail was removed: none may be taken twice, nor one of
    # which an end is left, or its messages would be taken for done.
    seen = yield from survey(keys)
    if isinstance(seen, Undecided):
        return seen
    batches = [batch.number for entry in seen[0] if (batch := batch_of(keys, entry.key))]
    leases = [message.number for entry in seen[1] if (message := message_of(keys, entry.key))]
    return KnownTail(max([*batches, *leases], default=0) + 1, None)


def _tail(found: FoundObject) -> KnownTail:
    return KnownTail(decode_tail(found.body).next, found.etag)


def _is_same(body: bytes, there: FoundObject) -> bool:
    return there.body == body


# Strictness: one message in flight, and none before it that is not done.
#
# A batch may come late: its number was taken before that of another which is there already. So two
# may each claim the head as they see it. Each claims first and looks afterwards, and the store
# shows every process what was written before it looked: of two claims, at least one sees the other,
# or the earlier message, and lets go. Both may; none is ever delivered beside another.

HeadResult = bool | Gone | Undecided


def confirm_head(
    keys: QueueKeys,
    mine: tuple[BatchId, MessageId],
    known: Mapping[str, LeaseObject],
    earliest_s: Callable[[], float],
) -> Steps[HeadResult]:
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
    keys: QueueKeys,
    message: MessageId,
    batches: Sequence[ListedObject],
    leases: Sequence[ListedObject],
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
    entry: ListedObject, known: Mapping[str, LeaseObject], earliest_s: Callable[[], float]
) -> Steps[bool | Undecided]:
    lease = known.get(entry.etag)
    if lease is None:
        there = yield from read(entry.key)
        if isinstance(there, Undecided):
            return there
        if not isinstance(there, FoundObject) or not there.size:
            return False
        lease = lease_in(there)
    # What cannot be read may be held.
    return lease is None or (lease.is_held and earliest_s() < lease.expires_s)
