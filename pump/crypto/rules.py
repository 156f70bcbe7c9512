"""Rules: what an `Encryption` was told, checked; and how old a message may be."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum

import attrs

from ..errors import ConfigurationError
from .envelope import moment
from .errors import MessageExpired, MessageFromFuture
from .keys import KeyProvider
from .replay import NonceTracking

_NO_TIME = timedelta(0)
_ONE_DAY = timedelta(days=1)


class PlaintextPolicy(StrEnum):
    """What becomes of a message that arrives unencrypted."""

    REJECT = "reject"
    """It is rejected as unacceptable (the default): whoever can write to the queue could leave
    the seal away, so anything else makes seals optional for an attacker too."""
    ALLOW = "allow"
    """It is handled, with a WARNING: while senders are being moved to encryption."""
    ALLOW_WITH_ALERT = "allow-with-alert"
    """It is handled, with an ERROR, a count and an event: for the end of such a move."""


def _policy(value: str) -> PlaintextPolicy:
    try:
        return PlaintextPolicy(value)
    except ValueError:
        choices = ", ".join(repr(policy.value) for policy in PlaintextPolicy)
        raise ConfigurationError("Encryption.plaintext", value, f"use one of {choices}") from None


@attrs.frozen(kw_only=True)
class Rules:
    """How messages are sealed and opened. Survives pickling if its keys can be loaded again."""

    keys: KeyProvider | None
    is_on: bool = True
    plaintext: PlaintextPolicy = attrs.field(default=PlaintextPolicy.REJECT, converter=_policy)
    max_age: timedelta | None = None
    clock_tolerance: timedelta = timedelta(minutes=5)
    nonces: NonceTracking | None = None

    def __attrs_post_init__(self) -> None:
        if (self.is_on or self.keys is not None) and not hasattr(self.keys, "active"):
            raise ConfigurationError(
                "Encryption.keys", type(self.keys).__name__, "use KeyRing(Key(id, material))"
            )
        _check_time("max_age", self.max_age, timedelta(microseconds=1))
        _check_time("clock_tolerance", self.clock_tolerance, _NO_TIME)
        if self.max_age is not None and self.nonce_ttl < self.max_age + self.clock_tolerance:
            raise ConfigurationError(
                "NonceTracking.ttl",
                self.nonce_ttl,
                f"a copy would still be fresh when its nonce is forgotten; use None, or at least "
                f"max_age and clock_tolerance together: {self.max_age + self.clock_tolerance}",
            )

    @property
    def nonce_ttl(self) -> timedelta:
        """How long nonces are remembered, if they are tracked."""
        if self.nonces is not None and self.nonces.ttl is not None:
            return self.nonces.ttl
        return _ONE_DAY if self.max_age is None else self.max_age + self.clock_tolerance

    def check_age(self, encrypted_at_ms: int, *, now_s: float) -> None:
        """Raise unless a message of that time is fresh now."""
        if self.max_age is None:
            return
        age_s = now_s - encrypted_at_ms / 1000
        if age_s > self.max_age.total_seconds():
            raise MessageExpired(moment(encrypted_at_ms), self.max_age)
        # A message from the future would stay fresh for longer than max_age.
        if -age_s > self.clock_tolerance.total_seconds():
            raise MessageFromFuture(moment(encrypted_at_ms), self.clock_tolerance)


def _check_time(name: str, value: object, least: timedelta) -> None:
    if value is not None and (not isinstance(value, timedelta) or value < least):
        remedy = "use a timedelta of zero or more" if not least else "use a timedelta above zero"
        raise ConfigurationError(f"Encryption.{name}", value, remedy)
