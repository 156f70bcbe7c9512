"""Tenancy: a message is claimed, kept and let go by single conditional writes of its lease.

| from             | by          | write                         | to                      |
|------------------|-------------|-------------------------------|-------------------------|
| no lease         | claim_fresh | is_new                        | held, attempt 1         |
| over             | reclaim     | If-Match, fence + 1           | held, attempt + 1       |
| held             | renew       | If-Match, the same token      | held, a later end       |
| held             | hand_back   | If-Match, no owner            | waiting, then over      |
| held             | ack         | If-Match, an empty body       | done, for good          |

A lease is over when it has expired, or when it has no owner and its delay has passed. Whoever
writes a lease makes its body with a nonce of its own.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from pump.errors import GatewayError, MappingError, Throttled

from ...store.driving import Steps
from ...store.objects import Found, Put
from ..codec import DONE, Lease, decode_lease, encode_lease
from .writing import MAX_TRIES, Lost, Undecided, Verdict, write


@attrs.frozen(kw_only=True)
class Tenancy:
    """A lease in hand: the version it was granted by, and its token."""

    key: str
    etag: str
    lease: Lease
    is_doubtful: bool = False
    """Whether an earlier write of ours got no answer, so that another version may be ours."""


def claim_fresh(key: str, lease: Lease) -> Steps[Verdict]:
    """Claim a message that was never claimed. Won, as any claim, it must be confirmed
    (`batches.confirm`).
    """
    return (yield from write(Put(key, encode_lease(lease), is_new=True), _has_nonce(lease)))


def reclaim(key: str, etag: str, lease: Lease) -> Steps[Verdict]:
    """Claim a message whose lease is over, in the version that said so."""
    return (yield from write(Put(key, encode_lease(lease), if_match=etag), _has_nonce(lease)))


def renew(tenancy: Tenancy, lease: Lease) -> Steps[Verdict]:
    """Replace the lease by a later one of the same token."""
    return (yield from _replace(tenancy, encode_lease(lease), _has_nonce(lease)))


def hand_back(tenancy: Tenancy, lease: Lease) -> Steps[Verdict]:
    """Replace the lease by one without an owner.

    `Gone`, or `Lost` after a look: an earlier write of ours had handed it back, or it is lost;
    either way it is not ours, which is what was asked for.
    """
    return (yield from _replace(tenancy, encode_lease(lease), _has_nonce(lease)))


def ack(tenancy: Tenancy) -> Steps[Verdict]:
    """Mark the message as done.

    `Gone`, or `Lost` after a look, but not to a later claim: our own write that got no answer has
    done it, if our lease is not over by the local clock, for until then nobody else may write here.
    Afterwards it may have been another's, and counts as lost.
    """
    return (yield from _replace(tenancy, DONE, lambda _: False))


def _replace(tenancy: Tenancy, body: bytes, is_ours: Callable[[Found], bool]) -> Steps[Verdict]:
    """Write over our own lease; over the version that a doubtful write of ours has left, too."""
    etag, is_doubtful = tenancy.etag, tenancy.is_doubtful
    error: GatewayError = Throttled(tenancy.key)
    for _ in range(MAX_TRIES):
        put = Put(tenancy.key, body, if_match=etag)
        verdict = yield from write(put, is_ours, is_doubtful=is_doubtful)
        found = verdict.found if isinstance(verdict, Lost) else None
        if found is None or not _has_token(found, tenancy.lease.token):
            return verdict
        etag, is_doubtful = found.etag, True
    return Undecided(error)


def _has_nonce(lease: Lease) -> Callable[[Found], bool]:
    def has_nonce(there: Found) -> bool:
        known = lease_in(there)
        return known is not None and known.nonce == lease.nonce

    return has_nonce


def _has_token(there: Found, token: str) -> bool:
    known = lease_in(there)
    return known is not None and known.token == token


def lease_in(there: Found) -> Lease | None:
    """The lease in an object; None when its message is done, or nobody can read it."""
    try:
        return decode_lease(there.body) if there.size else None
    except MappingError:
        return None
