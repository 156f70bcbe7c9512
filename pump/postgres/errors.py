"""What PostgreSQL and its driver say, in our words. Pure: nothing of the driver is imported.

By SQLSTATE, whose first two characters are a class of errors. Without one it was the connection.
"""

from __future__ import annotations

from typing import Final

import attrs

from ..errors import (
    AccessDenied,
    ConfigurationError,
    ConnectionFailed,
    GatewayError,
    PumpError,
    QueueNotFound,
    Throttled,
    text_of,
)

MAX_DETAIL: Final = 300
"""How many characters of the server's own words an error repeats."""

NO_QUEUE: Final = "PH404"
"""Raised by our functions: there is no such queue."""
SESSION_OVER: Final = "PH410"
"""The same: the lock of a session is over."""
_NO_SCHEMA: Final = frozenset({"3F000", "42883", "42P01"})
"""No such schema, function or table: nothing of ours is there."""
_DENIED: Final = "42501"
_NO_DATABASE: Final = "3D000"
_LOGIN: Final = "28"
_AWAY: Final = frozenset({"57P01", "57P02", "57P03", "57P05", "25006"})
"""Shutting down, crashed, starting, idle for too long; a standby, which takes no writes."""
_FOR_NOW: Final = frozenset({"57014", "55P03", "55006"})
"""Cancelled by a limit of the server's own, or by a lock that another one has."""
_FOR_NOW_CLASSES: Final = frozenset({"40", "53"})
"""Serialisation and deadlock; out of connections, memory or disk."""


@attrs.frozen
class StatementRefused(GatewayError):
    """The server refused a statement, and would refuse it again; `code` is its SQLSTATE."""

    target: str
    code: str
    detail: str

    def __str__(self) -> str:
        return f"{self.target} refused the statement ({self.code}): {self.detail}"


def fault_of(
    error: BaseException, *, code: str | None, target: str, queue: str, operation: str
) -> PumpError:
    """What an error of a statement means, by the server's SQLSTATE."""
    detail = shortened(text_of(error))
    if not code or code.startswith("08") or code in _AWAY:
        return ConnectionFailed(target, detail or type(error).__name__)
    if code == NO_QUEUE or code in _NO_SCHEMA:
        return QueueNotFound(queue)
    if code == _DENIED:
        return AccessDenied(f"queue {queue!r}" if queue else target, operation)
    if code in _FOR_NOW or code[:2] in _FOR_NOW_CLASSES:
        return Throttled(f"{target} ({detail})")
    return StatementRefused(target, code, detail)


def connect_fault(
    error: BaseException, *, code: str | None, target: str, secrets: tuple[str, ...] = ()
) -> PumpError:
    """Why there is no connection; libpq gives no SQLSTATE for what the server said while
    connecting, so its words are read too.
    """
    detail = shortened(text_of(error))
    for secret in secrets:
        detail = detail.replace(secret, "…")
    lower = detail.lower()
    if (code or "").startswith(_LOGIN) or "authentication failed" in lower:
        return AccessDenied(target, "connect")
    if "no password supplied" in lower or ("role" in lower and "does not exist" in lower):
        return AccessDenied(target, "connect")
    if code == _NO_DATABASE or ("database" in lower and "does not exist" in lower):
        return ConfigurationError("gateway", target, f"create the database first ({detail})")
    if (code or "").startswith("53") or "too many" in lower or "remaining connection" in lower:
        return Throttled(f"{target} ({detail})")
    return ConnectionFailed(target, detail or type(error).__name__)


def shortened(text: str) -> str:
    """One line, not too long."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_DETAIL else f"{line[: MAX_DETAIL - 1]}…"
