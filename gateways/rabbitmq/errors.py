"""The SDK's errors in our words."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager

import attrs

from pump.errors import (
    AccessDenied,
    ConnectionFailed,
    MessageTooLarge,
    PumpError,
    QueueMismatch,
    QueueNotFound,
    Throttled,
)

MAX_DETAIL = 300
"""How many characters of the broker's own words an error repeats."""
_NOT_OPENED = "Expected one of ['Connection.OpenOk'], got <Connection.Close"
"""All that the SDK tells of a virtual host that was refused."""
_TOO_LARGE = re.compile(r"message size (\d+) is larger than \D*(\d+)")


@attrs.frozen
class Where:
    """What a call is about, for its errors."""

    address: str
    operation: str
    queue: str = ""

    @property
    def target(self) -> str:
        """The queue, or the broker where there is none."""
        return f"queue {self.queue!r}" if self.queue else self.address


@contextmanager
def translated(where: Where) -> Iterator[None]:
    """Errors of the SDK leave the block as ours."""
    try:
        yield
    except PumpError:
        raise
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # The SDK's own way to say that a connection was closed under a call.
        raise ConnectionFailed(where.address, "the connection was closed") from None
    except Exception as error:  # broad: whatever the SDK raises is sorted, or raised as it is
        fault = fault_of(error, where)
        if fault is None:
            raise
        raise fault from error


def fault_of(error: BaseException, where: Where) -> PumpError | None:
    """Say what an error of the SDK means; None for one that is not the SDK's or the network's."""
    from aiormq import exceptions as sdk

    detail = _words(error)
    match error:
        case PumpError():
            return error
        case sdk.ChannelNotFoundEntity():
            return QueueNotFound(where.queue)
        case sdk.ChannelAccessRefused() | sdk.ChannelLockedResource():
            return AccessDenied(where.target, where.operation)
        case sdk.ChannelPreconditionFailed():
            return _precondition(detail, where)
        case sdk.ProbableAuthenticationError() | sdk.AuthenticationError():
            return AccessDenied(where.address, "logging in")
        case sdk.ConnectionInternalError():
            # Trouble of the broker's own, such as a quorum that was not formed in time; that it
            # names the queue's vhost refuses nothing.
            return ConnectionFailed(where.address, detail)
        case sdk.ConnectionClosed() | sdk.InvalidFrameError():
            return _refusal(detail, where)
        case sdk.DeliveryError():
            return Throttled(where.target)
        case sdk.AMQPError() | sdk.ChannelInvalidStateError() | OSError() | TimeoutError():
            return ConnectionFailed(where.address, detail)
        case OverflowError() | RecursionError():
            # Of the SDK's reader, at a header that it cannot take apart; see `sanitized`.
            return ConnectionFailed(where.address, detail)
        case RuntimeError() if "closed" in detail:
            return ConnectionFailed(where.address, detail)
        case Exception() if type(error) is Exception:
            # What aiormq ends its calls with where a connection closes without a reason.
            return ConnectionFailed(where.address, "the connection was closed")
    return None


def _precondition(detail: str, where: Where) -> PumpError:
    """Which condition of the broker's was not met: its words alone tell a body that is over its
    `max_message_size` from a queue that is another.
    """
    if (sizes := _TOO_LARGE.search(detail)) is not None:
        return MessageTooLarge(where.queue, int(sizes[1]), int(sizes[2]))
    return QueueMismatch(where.queue, detail)


def _refusal(detail: str, where: Where) -> PumpError:
    """Why the broker closed a whole connection: what can be fixed is told apart by its words."""
    if "vhost" in detail or _NOT_OPENED in detail:
        return AccessDenied(where.address, "using a virtual host that may not even exist")
    return ConnectionFailed(where.address, detail)


def _words(error: BaseException) -> str:
    """Its words, shortened. The SDK's own never hold a password: it is not among them."""
    words = ", ".join(str(argument) for argument in error.args if argument is not None)
    return (words or type(error).__name__)[:MAX_DETAIL]
