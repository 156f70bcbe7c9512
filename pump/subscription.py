"""Subscriptions: which queue, which requests, and every policy of consuming them.

Frozen and validated at construction: a `Subscription` that exists can be run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Any, TypeVar

import attrs

from .backoff import Backoff
from .capabilities import OrderingMode
from .errors import ConfigurationError
from .message import Message

# Failure strategies: what becomes of a message whose handler failed with an error.


@attrs.frozen(kw_only=True)
class Retry:
    """Deliver again, up to `max_retries` times (None: for ever), then reject."""

    max_retries: int | None = 5
    backoff: Backoff = Backoff()

    def __attrs_post_init__(self) -> None:
        if self.max_retries is not None:
            _check_retries("retry", self.max_retries)
        _check_backoff("retry", self.backoff)


@attrs.frozen(kw_only=True)
class DeadLetter:
    """Reject at the first failure; `queue` may also be given as the dead_letter_queue."""

    queue: str | None = None


@attrs.frozen(kw_only=True)
class Hybrid:
    """Deliver again up to `max_retries` times, then to the dead-letter queue. The default."""

    max_retries: int = 3
    queue: str | None = None
    backoff: Backoff = Backoff()

    def __attrs_post_init__(self) -> None:
        _check_retries("hybrid", self.max_retries)
        _check_backoff("hybrid", self.backoff)


FailureStrategy = Retry | DeadLetter | Hybrid


def _check_retries(strategy: str, max_retries: object) -> None:
    if not isinstance(max_retries, int) or isinstance(max_retries, bool) or max_retries < 0:
        raise ConfigurationError(
            f"{strategy}.max_retries", max_retries, "use a whole number of zero or more"
        )


def _check_backoff(strategy: str, backoff: object) -> None:
    if not isinstance(backoff, Backoff):
        raise ConfigurationError(f"{strategy}.backoff", backoff, "use a Backoff(…)")


def retry(max_retries: int | None = 5, *, backoff: Backoff | None = None) -> Retry:
    """Retry `max_retries` times (N retries are N+1 deliveries), then reject."""
    return Retry(max_retries=max_retries, backoff=backoff or Backoff())


def dead_letter(queue: str | None = None) -> DeadLetter:
    """Move to the dead-letter queue at the first failure."""
    return DeadLetter(queue=queue)


def hybrid(
    max_retries: int = 3, queue: str | None = None, *, backoff: Backoff | None = None
) -> Hybrid:
    """Retry `max_retries` times, then move to the dead-letter queue."""
    return Hybrid(max_retries=max_retries, queue=queue, backoff=backoff or Backoff())


TypeResolver = Callable[[Message], type | None]
"""Finds the request type of a message; None for one it does not know."""


FIVE_HUNDRED_MORE: Any = attrs.Factory(lambda self: _generous(self.failure), takes_self=True)
"""The default of `max_attempts`: handlers may defer for hours."""


class MakeChannels(StrEnum):
    """What opening a subscription does about its queues."""

    CREATE = "create"
    """Make those that are missing (the default)."""
    VALIDATE = "validate"
    """Fail unless they exist and fit."""
    ASSUME = "assume"
    """Ask nothing; the first operation finds out."""


class OnRoutingFailure(StrEnum):
    """What to do when a rejected message cannot be sent to its dead-letter or invalid queue."""

    SPILL = "spill"
    """Write it to the durable local spill store, then remove the original (the default)."""
    DELETE = "delete"
    """Log the loss and remove the original."""
    KEEP = "keep"
    """Leave the original to be delivered again after a backoff."""


@attrs.frozen(kw_only=True)
class UnacceptableLimit:
    """Stop the pump at `count` unacceptable messages within `window`.

    A deployment that no longer understands its queue would otherwise empty it into the bin.
    """

    count: int
    window: timedelta = timedelta(minutes=1)

    def __attrs_post_init__(self) -> None:
        _at_least("UnacceptableLimit.count", self.count, 1)
        _positive("UnacceptableLimit.window", self.window)


def checked_queue(field: str, name: object) -> None:
    """Raise `ConfigurationError` for what no gateway takes for a queue's name."""
    if not isinstance(name, str) or not name.strip():
        raise ConfigurationError(field, name, "name a queue")
    try:
        name.encode()
    except UnicodeEncodeError:
        remedy = "half a surrogate pair is no character; name a queue in text that UTF-8 has"
        raise ConfigurationError(field, name, remedy) from None


@attrs.frozen(kw_only=True)
class QueueSpec:
    """What a queue must be like; `options` is the gateway's own vocabulary."""

    name: str
    ordering: OrderingMode = OrderingMode.FIFO
    ordering_guarantee: bool = False
    max_receive_count: int | None = None
    dead_letter_queue: str | None = None
    lease: timedelta | None = None
    options: Mapping[str, Any] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        checked_queue("QueueSpec.name", self.name)
        if self.dead_letter_queue is not None:
            checked_queue("QueueSpec.dead_letter_queue", self.dead_letter_queue)


_Choice = TypeVar("_Choice", bound=StrEnum)


def _choose(choices: type[_Choice], field: str, value: str) -> _Choice:
    try:
        return choices(value)
    except ValueError:
        names = ", ".join(choice.value for choice in choices)
        raise ConfigurationError(f"Subscription.{field}", value, f"use one of: {names}") from None


def _ordering(value: str) -> OrderingMode:
    return _choose(OrderingMode, "ordering", value)


def _on_routing_failure(value: str) -> OnRoutingFailure:
    return _choose(OnRoutingFailure, "on_routing_failure", value)


def _make_channels(value: str) -> MakeChannels:
    return _choose(MakeChannels, "make_channels", value)


def _options(value: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigurationError("Subscription.options", value, "give a mapping of settings")
    return dict(value)


@attrs.frozen(kw_only=True)
class Subscription:
    """One queue, the requests it carries, and how to consume it."""

    queue: str
    """The queue (or topic) to receive from."""
    request: type | None = None
    """The request every message of this queue is, unless its type header names another one.
    `Message` for handlers that want every message itself, such as those that send it on."""
    resolver: TypeResolver | None = None
    """Finds the request type from a message, for queues that carry several."""
    name: str = ""
    """Names it in logs, metrics and on the command line; the queue's name by default."""
    dead_letter_queue: str | None = None
    """Where messages go that could not be handled (reason DELIVERY_ERROR)."""
    invalid_queue: str | None = None
    """Where unacceptable messages go; without it, to the dead-letter queue."""
    failure: FailureStrategy = Hybrid()
    """What a handler's error leads to: `retry()`, `dead_letter()` or `hybrid()`."""
    ordering: OrderingMode = attrs.field(default=OrderingMode.FIFO, converter=_ordering)
    """FIFO, or LIFO where the provider can."""
    ordering_guarantee: bool = False
    """Strict order, also across retries: one message in flight per group (or per queue)."""
    concurrency: int = 10
    """How many handlers run at once."""
    prefetch: int | None = None
    """How many more messages may wait in flight; by default as many as run at once, and more while
    handlers run dry waiting for the broker."""
    lease: timedelta = timedelta(seconds=30)
    """How long a message is hidden from others at receipt (SQS: visibility timeout)."""
    renew: bool = True
    """Extend leases while handlers run."""
    max_lease: timedelta | None = None
    """Stop extending after this long; None for as long as the provider allows."""
    wait: timedelta = timedelta(seconds=20)
    """How long one receive waits for a message (long polling)."""
    max_receive_count: int | None = None
    """Let the broker itself dead-letter after this many deliveries (native redrive)."""
    max_attempts: int | None = attrs.field(default=FIVE_HUNDRED_MORE)
    """Dead-letter a message unhandled when it was delivered more often than this, for one that
    kills its process never fails by an error. Deferrals count too, so by default it is 500 more
    than the strategy delivers. None: no limit, also the default where that retries for ever."""
    unacceptable_limit: UnacceptableLimit | None = None
    """When to stop because too many messages are unacceptable."""
    on_routing_failure: OnRoutingFailure = attrs.field(
        default=OnRoutingFailure.SPILL,
        converter=_on_routing_failure,
    )
    """What to do when a rejected message cannot be routed."""
    make_channels: MakeChannels = attrs.field(default=MakeChannels.CREATE, converter=_make_channels)
    """Create, validate or assume the queues."""
    drain_timeout: timedelta = timedelta(seconds=30)
    """How long a stopping pump lets running handlers finish."""
    options: Mapping[str, Any] = attrs.field(factory=dict, converter=_options)
    """Settings of the queue that only its gateway knows."""

    def __attrs_post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.queue)
        self._adopt_the_strategys_queue()
        self._check_kinds()
        self._check_names()
        self._check_numbers()
        self._check_order()

    @property
    def max_in_flight(self) -> int:
        """The most messages received and not yet settled: `concurrency` and `prefetch` together."""
        return self.concurrency + (self.concurrency if self.prefetch is None else self.prefetch)

    @property
    def in_hand(self) -> int:
        """The former name of `max_in_flight`. It keeps working; new code says `max_in_flight`."""
        return self.max_in_flight

    @property
    def attempt_limit(self) -> float:
        """The last delivery that is handled: `max_attempts`, and never less than the strategy's."""
        planned = _planned(self.failure)
        if self.max_attempts is None or planned is None:
            return math.inf if self.max_attempts is None else self.max_attempts
        return max(self.max_attempts, planned)

    def queue_specs(self) -> tuple[QueueSpec, ...]:
        """The queues this subscription needs: its targets first, then its own."""
        targets = dict.fromkeys(q for q in (self.dead_letter_queue, self.invalid_queue) if q)
        return (
            *(QueueSpec(name=target) for target in targets),
            QueueSpec(
                name=self.queue,
                ordering=self.ordering,
                ordering_guarantee=self.ordering_guarantee,
                max_receive_count=self.max_receive_count,
                dead_letter_queue=self.dead_letter_queue if self.max_receive_count else None,
                lease=self.lease,
                options=self.options,
            ),
        )

    def _adopt_the_strategys_queue(self) -> None:
        named = self.failure.queue if isinstance(self.failure, DeadLetter | Hybrid) else None
        if named is None:
            return
        if self.dead_letter_queue not in (None, named):
            raise ConfigurationError(
                "Subscription.dead_letter_queue",
                self.dead_letter_queue,
                f"the failure strategy names {named!r}; name the queue once",
            )
        object.__setattr__(self, "dead_letter_queue", named)

    def _check_kinds(self) -> None:
        if not isinstance(self.failure, FailureStrategy):
            raise ConfigurationError(
                "Subscription.failure", self.failure, "use retry(), dead_letter() or hybrid()"
            )
        if self.resolver is not None and not callable(self.resolver):
            raise ConfigurationError(
                "Subscription.resolver", self.resolver, "give a function of a message"
            )
        if not isinstance(self.unacceptable_limit, UnacceptableLimit | None):
            raise ConfigurationError(
                "Subscription.unacceptable_limit",
                self.unacceptable_limit,
                "use UnacceptableLimit(count=…, window=…)",
            )
        for field in ("ordering_guarantee", "renew"):
            if not isinstance(getattr(self, field), bool):
                raise ConfigurationError(
                    f"Subscription.{field}", getattr(self, field), "use True or False"
                )

    def _check_names(self) -> None:
        for field in ("queue", "dead_letter_queue", "invalid_queue"):
            value = getattr(self, field)
            optional = field != "queue"
            if optional and value is None:
                continue
            checked_queue(f"Subscription.{field}", value)
        if not isinstance(self.name, str):
            raise ConfigurationError("Subscription.name", self.name, "give it a name in text")
        for field in ("dead_letter_queue", "invalid_queue"):
            if getattr(self, field) == self.queue:
                raise ConfigurationError(
                    f"Subscription.{field}",
                    self.queue,
                    "a rejected message would come straight back; name another queue",
                )
        if self.request is None and self.resolver is None:
            raise ConfigurationError(
                "Subscription.request", None, "give a request type, or a resolver"
            )
        if self.request is not None and not isinstance(self.request, type):
            raise ConfigurationError("Subscription.request", self.request, "give a class")
        if isinstance(self.failure, DeadLetter) and self.dead_letter_queue is None:
            raise ConfigurationError(
                "Subscription.dead_letter_queue", None, "dead_letter() needs a queue to move to"
            )
        if self.max_receive_count is not None and self.dead_letter_queue is None:
            raise ConfigurationError(
                "Subscription.dead_letter_queue",
                None,
                "max_receive_count needs a dead_letter_queue to move to",
            )

    def _check_numbers(self) -> None:
        _at_least("Subscription.concurrency", self.concurrency, 1)
        if self.prefetch is not None:
            _at_least("Subscription.prefetch", self.prefetch, 0)
        if self.max_receive_count is not None:
            _at_least("Subscription.max_receive_count", self.max_receive_count, 1)
        if self.max_attempts is not None:
            _at_least("Subscription.max_attempts", self.max_attempts, 1)
        _positive("Subscription.lease", self.lease)
        _positive("Subscription.wait", self.wait)
        _positive("Subscription.drain_timeout", self.drain_timeout)
        if self.max_lease is not None:
            _positive("Subscription.max_lease", self.max_lease)
            if self.max_lease < self.lease:
                raise ConfigurationError(
                    "Subscription.max_lease",
                    self.max_lease,
                    f"use at least the lease ({self.lease})",
                )

    def _check_order(self) -> None:
        if self.ordering_guarantee and self.ordering is OrderingMode.LIFO:
            raise ConfigurationError(
                "Subscription.ordering_guarantee",
                True,
                "newest-first has no order to guarantee; use FIFO, or drop the guarantee",
            )


def _planned(strategy: FailureStrategy) -> int | None:
    """How many deliveries a strategy asks for, None for as many as it takes."""
    if isinstance(strategy, DeadLetter):
        return 1
    return None if strategy.max_retries is None else strategy.max_retries + 1


def _generous(strategy: object) -> int | None:
    if not isinstance(strategy, FailureStrategy):
        return None  # Refused in a moment.
    planned = _planned(strategy)
    return None if planned is None else planned + 500


def _at_least(field: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigurationError(field, value, f"use a whole number of {least} or more")


def _positive(field: str, value: object) -> None:
    if not isinstance(value, timedelta) or value <= timedelta(0):
        raise ConfigurationError(field, value, "use a timedelta above zero")
