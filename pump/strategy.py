"""Failure strategies: what becomes of a message whose handler failed with an error."""

from __future__ import annotations

import attrs

from .backoff import Backoff
from .errors import ConfigurationError


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
