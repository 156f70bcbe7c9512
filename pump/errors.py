"""Everything Pumphouse raises, in few branches, chosen by what the caller does next.

Fix it: `ConfigurationError`, `QueueNotFound`, `AccessDenied`, `UnsupportedOperation`,
`HandlerNotFound`, `TooManyHandlers`. Wait: `ConnectionFailed`, `Throttled`, `PoolExhausted`,
`CredentialsExpired`. Let go:
`InvalidReceipt`, `LeaseLost`, `SessionLockLost`. Reject: `MappingError`, `CryptoError`.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from typing import Final

import attrs

MAX_TEXT: Final = 10_000
"""Characters of what others raise that we keep."""


def text_of(thing: object, how: Callable[[object], str] = str) -> str:
    """`str(thing)`, or its `repr`, whatever its class makes of that: text, of a bounded length,
    that can be encoded. What others raise is asked for its words by nothing else.

    A `__str__` that raises gives the class's name and what it raised.
    """
    try:
        return how(thing)[:MAX_TEXT].encode("utf-8", "replace").decode()
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # broad: nothing is awaited, so it is the class's own doing
        return f"<{_class_of(thing)} without text: {_class_of(error)}>"


# As Python itself holds them: a class may override how it shows them.
_members: Callable[[BaseException], tuple[BaseException, ...]] = vars(BaseExceptionGroup)[
    "exceptions"
].__get__
_name_of: Callable[[type], str] = vars(type)["__name__"].__get__


def _class_of(thing: object) -> str:
    return _name_of(type(thing))


def trace_of(error: BaseException) -> str:
    """Its traceback, or as much text as can be had of it."""
    try:
        if not _invents_members(error):
            return "".join(traceback.format_exception(error))
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException:  # broad: as `text_of`; and a group may be too deep for it
        pass
    return f"{_class_of(error)}: {text_of(error)}\n"


def _invents_members(error: BaseException) -> bool:
    """Whether a group in it, or in what led to it, computes `exceptions`: that need not end."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        members = members_of(each)
        if members and type(each).exceptions is not BaseExceptionGroup.exceptions:  # type: ignore[attr-defined]
            return True
        waiting += (*members, each.__cause__, each.__context__)
    return False


def members_of(error: BaseException) -> tuple[BaseException, ...]:
    """The errors in a group; of any other error none."""
    return _members(error) if issubclass(type(error), BaseExceptionGroup) else ()


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors in a group, however deep; of any other error itself. Asks nothing of their
    classes.
    """
    waiting = [error]
    while waiting:
        each = waiting.pop()
        members = members_of(each)
        waiting.extend(reversed(members))
        if not members:
            yield each


def examined(error: BaseException) -> BaseException:
    """The error; or an `UnreadableError` in its place, when it or a member of it raises as soon
    as it is asked what it is. Whatever else looks at it then may do so plainly.
    """
    try:
        for each in (error, *leaves(error)):
            isinstance(each, PumpError)
            f"{type(each).__name__}: {text_of(each)}"
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException:  # broad: as `text_of`
        return UnreadableError(_class_of(error))
    return error


class PumpError(Exception):
    """The root of every error of ours."""


@attrs.frozen
class ConfigurationError(PumpError):
    """A setting cannot work. Names the field, the value it had, and the remedy."""

    field: str
    value: object
    remedy: str

    def __str__(self) -> str:
        return f"{self.field}={self.value!r}: {self.remedy}"


@attrs.frozen
class UnreadableError(PumpError):
    """Stands for an error of a handler's that cannot be looked at: its class raises when it is
    asked what it is.
    """

    error_type: str

    def __str__(self) -> str:
        return f"{self.error_type} raises when it is asked what it is"


class GatewayError(PumpError):
    """A broker, or the way to it, said no."""


@attrs.frozen
class ConnectionFailed(GatewayError):
    """The broker cannot be reached; the gateway recovers by itself when it can."""

    target: str
    detail: str

    def __str__(self) -> str:
        return f"cannot reach {self.target}: {self.detail}"


@attrs.frozen
class Throttled(GatewayError):
    """The broker asks for patience."""

    target: str
    retry_after_s: float | None = None

    def __str__(self) -> str:
        wait = "" if self.retry_after_s is None else f"; it asks to wait {self.retry_after_s:g} s"
        return f"{self.target} is throttling{wait}"


@attrs.frozen
class QueueNotFound(GatewayError):
    """There is no such queue."""

    queue: str

    def __str__(self) -> str:
        return (
            f"queue {self.queue!r} does not exist; create it, or let the subscription do so "
            f"with make_channels=MakeChannels.CREATE"
        )


@attrs.frozen
class QueueMismatch(GatewayError):
    """The queue exists with other settings than the ones asked for."""

    queue: str
    detail: str

    def __str__(self) -> str:
        return f"queue {self.queue!r} exists with other settings: {self.detail}"


@attrs.frozen
class AccessDenied(GatewayError):
    """The broker refuses these credentials this operation."""

    target: str
    operation: str

    def __str__(self) -> str:
        return f"{self.operation} on {self.target} was denied; grant that permission"


@attrs.frozen
class CredentialsExpired(GatewayError):
    """The broker no longer accepts these credentials; newer ones may be on their way."""

    target: str
    detail: str

    def __str__(self) -> str:
        return (
            f"the credentials for {self.target} have expired or are not valid ({self.detail}); "
            f"renew them, or use a role that renews by itself"
        )


@attrs.frozen
class PoolExhausted(GatewayError):
    """Every connection was busy for too long; nothing was sent."""

    target: str
    limit: int

    def __str__(self) -> str:
        return (
            f"all {self.limit} connections were busy for too long to reach {self.target}; raise "
            f"max_connections, or run fewer subscriptions in one process"
        )


@attrs.frozen
class InvalidReceipt(GatewayError):
    """The receipt is unknown, already settled, or its lease is over; nothing was changed."""

    queue: str
    receipt: str

    def __str__(self) -> str:
        return (
            f"receipt {self.receipt!r} on queue {self.queue!r} is not valid: it was settled "
            f"before, its lease ran out, or it never existed"
        )


@attrs.frozen
class LeaseLost(GatewayError):
    """The lease ran out while the message was being handled; it may run elsewhere now."""

    queue: str
    message_id: str

    def __str__(self) -> str:
        return (
            f"the lease on message {self.message_id} of queue {self.queue!r} was lost; it will be "
            f"delivered again. Lengthen Subscription.lease or keep renewal on"
        )


@attrs.frozen
class SessionLocked(GatewayError):
    """Another consumer holds the session."""

    queue: str
    session: str

    def __str__(self) -> str:
        return f"session {self.session!r} of queue {self.queue!r} is held by another consumer"


@attrs.frozen
class SessionLockLost(GatewayError):
    """The session's lock ran out; another consumer may hold it now."""

    queue: str
    session: str

    def __str__(self) -> str:
        return f"the lock on session {self.session!r} of queue {self.queue!r} was lost"


@attrs.frozen
class MessageTooLarge(GatewayError):
    """The broker does not carry bodies of this size."""

    queue: str
    size: int
    max_size: int

    def __str__(self) -> str:
        return (
            f"a message of {self.size} bytes is over the {self.max_size} that queue "
            f"{self.queue!r} carries; send a reference to the data instead, or set up the "
            f"gateway's claim check where it has one"
        )


@attrs.frozen
class StorageFailed(GatewayError):
    """The embedded queue's files cannot be read or written; nothing was acknowledged."""

    path: str
    detail: str

    def __str__(self) -> str:
        return f"{self.path}: {self.detail}"


@attrs.frozen
class StorageFull(StorageFailed):
    """What is left on the disk is kept for receives and acks: nothing more is sent for now."""


@attrs.frozen
class UnsupportedOperation(PumpError):
    """The gateway cannot do this, and says why."""

    gateway: str
    operation: str
    why: str

    def __str__(self) -> str:
        return f"the {self.gateway} gateway does not support {self.operation}: {self.why}"


@attrs.frozen
class MappingError(PumpError):
    """A message cannot become a request (or the reverse); it is rejected as unacceptable."""

    message_type: str
    detail: str

    def __str__(self) -> str:
        return f"message of type {self.message_type!r}: {self.detail}"


@attrs.frozen
class CorruptedMessage(MappingError):
    """What is stored is not what was sent; it is rejected as corrupted, and never handled."""


class CryptoError(PumpError):
    """A message cannot be decrypted, or must not be sent as it is; see `pump.crypto.errors`.

    On the way in it is rejected as unacceptable, still encrypted. No text of theirs says anything
    about a key but its id.
    """


@attrs.frozen
class HandlerNotFound(PumpError):
    """No handler is registered for a request that needs one."""

    request_type: str

    def __str__(self) -> str:
        return (
            f"no handler is registered for {self.request_type}; add one with "
            f"app.register({self.request_type}, YourHandler)"
        )


@attrs.frozen
class TooManyHandlers(PumpError):
    """A command has more than one handler."""

    request_type: str
    handlers: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{self.request_type} is a command and takes exactly one handler, but has "
            f"{', '.join(self.handlers)}; make it an Event or remove the others"
        )


@attrs.frozen
class HandlerTimeout(PumpError):
    """A handler did not finish in the time it was given."""

    handler: str
    limit_s: float

    def __str__(self) -> str:
        return f"{self.handler} did not finish within {self.limit_s:g} s"


@attrs.frozen
class UnacceptableLimitReached(PumpError):
    """Too many messages were unacceptable: the pump stopped rather than empty the queue."""

    subscription: str
    count: int
    window_s: float

    def __str__(self) -> str:
        return (
            f"subscription {self.subscription!r} met {self.count} unacceptable messages within "
            f"{self.window_s:g} s and stopped; look at its invalid-message queue, then start again"
        )


@attrs.frozen
class SendFailed(PumpError):
    """Some messages of a send were not accepted; each failure stands with its message's id."""

    queue: str
    failures: tuple[tuple[str, Exception], ...]

    def __str__(self) -> str:
        first_id, first = self.failures[0]
        return (
            f"{len(self.failures)} message(s) were not accepted by queue {self.queue!r}; "
            f"the first, {first_id}: {first}"
        )


@attrs.frozen
class BatchFailed(PumpError):
    """A function does not name failed messages in its answer, so all of its event comes again."""

    failed_ids: tuple[str, ...]
    count: int

    def __str__(self) -> str:
        return (
            f"{len(self.failed_ids)} of {self.count} message(s) are to come again; the first: "
            f"{self.failed_ids[0]}. To have only those come again, turn on "
            f"ReportBatchItemFailures and use lambda_handler(partial_batches=True)"
        )
