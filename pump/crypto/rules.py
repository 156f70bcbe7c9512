"""Rules: what an `Encryption` was told, checked; and how old a message may be."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from enum import StrEnum

import attrs

from ..errors import ConfigurationError
from .envelope import VERSIONS, Envelope, moment
from .errors import (
    MessageExpired,
    MessageFromFuture,
    SealedForAnotherQueue,
    UnsupportedVersion,
)
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


def _names(queues: Iterable[str]) -> frozenset[str]:
    if isinstance(queues, str):
        raise ConfigurationError("Encryption.also_from", queues, "give a list of queues' names")
    return frozenset(queues)


@attrs.frozen(kw_only=True)
class Rules:
    """How messages are sealed and opened. Survives pickling if its keys can be loaded again."""

    keys: KeyProvider | None
    is_on: bool = True
    plaintext: PlaintextPolicy = attrs.field(default=PlaintextPolicy.REJECT, converter=_policy)
    max_age: timedelta | None = None
    clock_tolerance: timedelta = timedelta(minutes=5)
    nonces: NonceTracking | None = None
    write_version: int = VERSIONS[-1]
    oldest_version: int = VERSIONS[0]
    bind_queue: bool = False
    also_from: frozenset[str] = attrs.field(default=frozenset(), converter=_names)

    def __attrs_post_init__(self) -> None:
        for name in ("write_version", "oldest_version"):
            if (version := getattr(self, name)) not in VERSIONS:
                raise ConfigurationError(f"Encryption.{name}", version, "use 1 or 2")
        if self.write_version < self.oldest_version:
            raise ConfigurationError(
                "Encryption.write_version",
                self.write_version,
                f"oldest_version={self.oldest_version} would not open what is written",
            )
        if self.bind_queue and self.write_version < VERSIONS[-1]:
            raise ConfigurationError(
                "Encryption.bind_queue", True, "version 1 names no queue; write version 2"
            )
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

    def check_version(self, envelope: Envelope) -> None:
        """Raise for a version that is read by this release, and not wanted here."""
        if envelope.version < self.oldest_version:
            raise UnsupportedVersion(envelope.version)

    def check_queue(self, sealed_for: str | None, queue: str, message_id: str) -> None:
        """Raise for a message that is bound to a queue which is not its own here."""
        if sealed_for is not None and sealed_for != queue and sealed_for not in self.also_from:
            raise SealedForAnotherQueue(message_id, sealed_for, queue)

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
