"""What NATS and its SDK say, in our words. Pure: nothing of the SDK is imported to recognise it."""

from __future__ import annotations

import re
from typing import Final

import attrs

from pump.errors import (
    AccessDenied,
    ConfigurationError,
    ConnectionFailed,
    CredentialsExpired,
    GatewayError,
    PumpError,
    QueueMismatch,
    QueueNotFound,
    Throttled,
)

MAX_DETAIL: Final = 300
"""How many characters of the server's own words an error repeats."""

STREAM_NOT_FOUND: Final = 10059
CONSUMER_NOT_FOUND: Final = 10014
MESSAGE_NOT_FOUND: Final = 10037
STREAM_EXISTS: Final = 10058
CONSUMER_EXISTS: Final = 10148
CONSUMER_NAME_TAKEN: Final = 10013
CONSUMER_NOT_UNIQUE: Final = 10100
WRONG_LAST_SEQUENCE: Final = 10071
_NOT_THERE: Final = frozenset({STREAM_NOT_FOUND, 10060})
"""No such stream, or another one than expected under this subject."""
_SUBJECTS_OVERLAP: Final = 10065
_JETSTREAM_OFF: Final = frozenset({10039, 10076})
_FOR_NOW: Final = frozenset({10008, 10023, 10047, 10077, 10167})
"""Out of storage, memory or space in the stream, no leader, too many publishes under way."""

_AUTH_WORDS: Final = ("authorization violation", "authentication")
_VIOLATION: Final = re.compile(r"permissions violation for (\w+) to \"([^\"]+)\"")


@attrs.frozen
class RequestRefused(GatewayError):
    """The server refused this request, and would refuse it again; `code` is its own."""

    target: str
    code: int
    detail: str

    def __str__(self) -> str:
        return f"{self.target} refused the request ({self.code}): {self.detail}"


def api_fault(code: int, error_code: int, text: str, *, queue: str) -> PumpError:
    """What an error in the answer of JetStream's API means for this queue."""
    detail = shortened(text)
    if error_code in _NOT_THERE:
        return QueueNotFound(queue)
    if error_code == _SUBJECTS_OVERLAP:
        return QueueMismatch(queue, f"{detail}: another stream has its subjects; rename it")
    if error_code in _JETSTREAM_OFF:
        remedy = "enable JetStream for this account and server"
        return ConfigurationError("nats-server", detail, remedy)
    if code in (429, 503) or error_code in _FOR_NOW:
        return Throttled(f"queue {queue!r} ({detail})")
    return RequestRefused(f"queue {queue!r}", error_code, detail)


def no_jetstream(target: str, *, is_there: bool) -> PumpError:
    """No answer from JetStream's API; `is_there` is what the server said of it on connecting."""
    if is_there:
        return ConnectionFailed(target, "JetStream does not answer at the moment")
    return ConfigurationError(
        "nats-server", target, "JetStream is off for this account or domain; start it with -js"
    )


def connect_fault(error: BaseException, target: str, secrets: tuple[str, ...] = ()) -> PumpError:
    """Why there is no connection."""
    text = _without(shortened(str(error)), secrets)
    lower = text.lower()
    if "authentication expired" in lower:
        return CredentialsExpired(target, text)
    if any(word in lower for word in _AUTH_WORDS):
        return AccessDenied(target, "connect")
    name = type(error).__name__
    return ConnectionFailed(target, f"{name}: {text}" if text else name)


def violation_of(error: BaseException) -> tuple[str, str] | None:
    """The operation and subject, in lower case, that the server did not allow."""
    found = _VIOLATION.search(str(error).lower())
    return None if found is None else (found[1], found[2])


def shortened(text: str) -> str:
    """One line, not too long."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_DETAIL else f"{line[: MAX_DETAIL - 1]}…"


def _without(text: str, secrets: tuple[str, ...]) -> str:
    for secret in secrets:
        text = text.replace(secret, "…")
    return text
