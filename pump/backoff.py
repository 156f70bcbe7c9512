"""Backoff: the only place that chooses a delay. Pure; the jitter is an argument."""

from __future__ import annotations

from datetime import timedelta
from math import inf

import attrs

from .errors import ConfigurationError


@attrs.frozen(kw_only=True)
class Backoff:
    """Exponential delays: `initial`, then `factor` times more each attempt, up to `maximum`.

    `jitter` is the share of a delay that chance may take away (0: none, 1: down to zero), so
    that messages that failed together do not come back together.
    """

    initial: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    maximum: timedelta = timedelta(minutes=5)
    jitter: float = 0.2

    def __attrs_post_init__(self) -> None:
        if not _is_duration(self.initial) or self.initial < timedelta(0):
            raise ConfigurationError(
                "Backoff.initial", self.initial, "use a timedelta of zero or more"
            )
        # Put so that NaN fails as well.
        if not _is_number(self.factor) or not 1 <= self.factor < inf:
            raise ConfigurationError("Backoff.factor", self.factor, "use 1 or more")
        if not _is_duration(self.maximum) or self.maximum < self.initial:
            raise ConfigurationError(
                "Backoff.maximum", self.maximum, f"use at least initial ({self.initial})"
            )
        if not _is_number(self.jitter) or not 0 <= self.jitter <= 1:
            raise ConfigurationError("Backoff.jitter", self.jitter, "use a share from 0 to 1")

    def delay_s(self, attempt: int, chance: float) -> float:
        """The delay after the `attempt`-th failure (from 1), with `chance` in [0, 1)."""
        initial_s, maximum_s = self.initial.total_seconds(), self.maximum.total_seconds()
        # A large exponent overflows a float long before it matters.
        grown_s = initial_s * self.factor ** min(attempt - 1, 64)
        return min(grown_s, maximum_s) * (1 - self.jitter * chance)


def _is_duration(value: object) -> bool:
    return isinstance(value, timedelta)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


RECONNECT = Backoff(initial=timedelta(milliseconds=100), maximum=timedelta(seconds=30), jitter=0.5)
"""For whatever waits for a broker to come back."""
UNREACHABLE = Backoff(initial=timedelta(milliseconds=100), maximum=timedelta(seconds=5), jitter=0.5)
"""For whatever waits for a broker that cannot be reached: to ask costs one connection that is
refused, and a broker that is back should not be waited for."""
