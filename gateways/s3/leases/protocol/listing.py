"""Listing: what is there, page by page, and what a lease says."""

from __future__ import annotations

from pump.errors import GatewayError, Throttled

from ...keys import QueueKeys
from ...store.driving import Steps
from ...store.objects import Entry, List, Page, Unknown
from .writing import MAX_TRIES, Undecided

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


def list_all(prefix: str, *, until: str | None = None) -> Steps[list[Entry] | Undecided]:
    """All keys below a prefix, or those up to and with the page that holds a key."""
    entries: list[Entry] = []
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


def survey(keys: QueueKeys) -> Steps[tuple[list[Entry], list[Entry]] | Undecided]:
    """All batches, then all leases. A lease without a batch here is of one that came between."""
    batches = yield from list_all(keys.messages)
    if isinstance(batches, Undecided):
        return batches
    leases = yield from list_all(keys.pending)
    return leases if isinstance(leases, Undecided) else (batches, leases)
