"""The SDK's errors in our words. Pure: nothing of the SDK is imported to recognise them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import attrs

from pump.errors import (
    AccessDenied,
    ConnectionFailed,
    CredentialsExpired,
    GatewayError,
    LeaseLost,
    PumpError,
    QueueNotFound,
    SessionLocked,
    SessionLockLost,
    Throttled,
)

MAX_DETAIL: Final = 300
"""How many characters of the service's own words an error repeats."""
_MAX_CAUSES: Final = 10


@attrs.frozen
class ServiceBusTarget:
    """What a call is about, for its errors."""

    address: str
    operation: str
    queue: str = ""
    session: str = ""

    @property
    def target(self) -> str:
        """The queue, or the namespace where there is none."""
        return f"queue {self.queue!r}" if self.queue else self.address


@attrs.frozen
class RequestRefused(GatewayError):
    """The service refused this request, and would refuse it again."""

    target: str
    operation: str
    detail: str

    def __str__(self) -> str:
        return f"{self.operation} on {self.target} was refused: {self.detail}"


@attrs.frozen
class NoSessionFree(GatewayError):
    """There was no session to be had in the time given."""

    queue: str

    def __str__(self) -> str:
        return f"no session of queue {self.queue!r} was free"


def fault_of(error: BaseException, where: ServiceBusTarget) -> PumpError:
    """Say what an error of the SDK, or of the way to the service, means."""
    if isinstance(error, PumpError):
        return error
    kinds = {each.__name__ for each in type(error).__mro__}
    causes = list(_causes(error))
    said = _words(causes)
    detail = _short(said)
    for kind, fault in _by_kind(where, detail).items():
        if kind in kinds:
            return fault
    if kinds & {
        "ServiceBusAuthenticationError",
        "TokenAuthFailure",
        "ServiceBusAuthorizationError",
    }:
        return _authentication(said, where)
    status = getattr(error, "status_code", None)
    if status is None and "ClientAuthenticationError" in kinds:  # no identity to ask
        return CredentialsExpired(where.address, detail)
    if "HttpResponseError" in kinds:
        return _http(status, detail, where)
    if any(_is_login(cause) for cause in causes):
        return CredentialsExpired(where.address, detail)
    return _by_words(said, where)


def _by_kind(where: ServiceBusTarget, detail: str) -> dict[str, PumpError]:
    return {
        "MessagingEntityNotFoundError": QueueNotFound(where.queue),
        "ResourceNotFoundError": QueueNotFound(where.queue),
        "SessionCannotBeLockedError": SessionLocked(where.queue, where.session),
        "SessionLockLostError": SessionLockLost(where.queue, where.session),
        "MessageLockLostError": LeaseLost(where.queue, ""),
        "MessageNotFoundError": LeaseLost(where.queue, ""),
        "ServiceBusServerBusyError": Throttled(where.target),
        "ServiceBusQuotaExceededError": Throttled(f"{where.target} ({detail})"),
        # What is too large is known before; this is a tier smaller than max_message_bytes says.
        "MessageSizeExceededError": RequestRefused(where.target, where.operation, detail),
        "MessagingEntityDisabledError": RequestRefused(where.target, where.operation, detail),
    }


def _authentication(said: str, where: ServiceBusTarget) -> PumpError:
    """The service looks for the entity while it looks at the token, and answers for both."""
    words = said.lower()
    if "status code: 404" in words or "could not be found" in words:
        return QueueNotFound(where.queue)
    if "expiredtoken" in words or "token is expired" in words:
        return CredentialsExpired(where.address, _short(said))
    return AccessDenied(where.target, where.operation)


def _http(status: int | None, detail: str, where: ServiceBusTarget) -> PumpError:
    match status:
        case 401 | 403:
            return AccessDenied(where.target, where.operation)
        case 404:
            return QueueNotFound(where.queue)
        case 429 | 503:
            return Throttled(where.target)
        case None:
            return ConnectionFailed(where.address, detail)
        case code if code >= 500:
            return ConnectionFailed(where.address, detail)
    return RequestRefused(where.target, where.operation, detail)


def _by_words(said: str, where: ServiceBusTarget) -> PumpError:
    """By all of its words: the condition stands behind a description of any length."""
    words, detail = said.lower(), _short(said)
    if "amqp:not-found" in words:
        return QueueNotFound(where.queue)
    if "com.microsoft:timeout" in words and where.operation == "accepting":
        return NoSessionFree(where.queue)
    if "amqp:not-allowed" in words or "argument-error" in words or "not-implemented" in words:
        return RequestRefused(where.target, where.operation, detail)
    return ConnectionFailed(where.address, detail)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what led to it: the SDK's own words are sometimes only there."""
    current: BaseException | None = error
    for _ in range(_MAX_CAUSES):
        if current is None:
            return
        yield current
        current = current.__cause__ or current.__context__


def _is_login(error: BaseException) -> bool:
    """Whether azure-identity had no identity to use; inside of a link, only a cause says so."""
    return any(each.__name__ == "ClientAuthenticationError" for each in type(error).__mro__)


def _words(causes: list[BaseException]) -> str:
    """Its words, on one line. The SDK's own hold no key."""
    said = dict.fromkeys(" ".join(str(each).split()) or type(each).__name__ for each in causes)
    return "; ".join(said)


def _short(line: str) -> str:
    return line if len(line) <= MAX_DETAIL else f"{line[: MAX_DETAIL - 1]}…"
