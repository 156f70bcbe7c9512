"""Capabilities: what a gateway can do natively. The contract suite and the pump read it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import attrs

from .errors import ConfigurationError


class OrderingMode(StrEnum):
    """Which of the available messages comes first."""

    FIFO = "fifo"
    """The oldest first (the default)."""
    LIFO = "lifo"
    """The newest first, where the provider can (memory, local, S3)."""


def _names(names: Iterable[str]) -> frozenset[str]:
    return frozenset(names)


@attrs.frozen(kw_only=True)
class Capabilities:
    """What one gateway offers; every field is a fact its contract tests hold it to."""

    gateway: str
    """The scheme that names it; telemetry derives `messaging.system` from it."""
    ordering_modes: frozenset[OrderingMode] = frozenset({OrderingMode.FIFO})
    has_strict_order: bool = False
    """`ordering_guarantee=True` holds across retries and expiry."""
    has_groups: bool = False
    """Messages with one `group` are delivered in order, groups in parallel."""
    has_deduplication: bool = False
    has_sessions: bool = False
    """A session (a group, for one consumer at a time) can be accepted."""
    has_session_choice: bool = False
    """A session can be asked for by its id; without it, the provider chooses."""
    has_native_redrive: bool = False
    """Honours `max_receive_count` without the pump's help."""
    has_uncounted_abandon: bool = False
    """An abandoned delivery does not count as an attempt; False where it may."""
    has_peek: bool = False
    has_purge: bool = False
    has_exact_stats: bool = False
    """Queue depths are counted, not estimated: a queue that is said to be empty is. False where
    they may be estimates."""
    has_lease_expiry: bool = True
    """The broker itself makes an unsettled message available again."""
    is_durable: bool = False
    """An accepted send survives the death of every process involved."""
    is_shared: bool = False
    """Other processes of this machine can reach the same queues: what one sends the other
    receives, what one holds is hidden from the other."""
    spans_machines: bool = False
    """Processes on other machines can reach them too, by the same URL: no file, database or
    socket of this machine is needed for it."""
    max_delay_s: float | None = None
    """The longest delay of a send, None for no limit. The gateway refuses a longer one
    (`UnsupportedOperation`); the core does not look."""
    max_defer_s: float | None = None
    """The longest delay of a deferral, None for no limit; the pump asks for no more, and the
    gateway grants no more."""
    max_lease_s: float | None = None
    """How long one delivery can be kept by extending it, in total; None for no limit."""
    max_body_bytes: int | None = None
    """The largest body; where the provider counts a message as a whole, its other fields use up
    some of it."""
    receive_batch: int = 10
    """The most one receive returns, and what it returns when there is as much."""
    settle_batch: int = 10
    """The most one settle or extend call takes in one request to the broker, or in requests that
    are under way together; of more it makes several. The pump's calls are that large."""
    settle_linger_s: float = 0.0
    """How long an ack may wait for company, a second at most; worth it where a request is dear."""
    max_settle_calls: int = 1
    """How many settle requests at once still help; so many are safe."""
    max_pollers: int = 1
    """How many receives at once still help; so many are safe."""
    emulated: frozenset[str] = attrs.field(default=frozenset(), converter=_names)
    """Of the fields above, those that the gateway makes up for the provider, by a detour that its
    page of the documentation describes."""

    def __attrs_post_init__(self) -> None:
        unknown = self.emulated - {field.name for field in attrs.fields(type(self))}
        if unknown:
            raise ConfigurationError(
                "Capabilities.emulated", sorted(unknown), "name fields of Capabilities"
            )
