"""The SDK's errors in our words, and versions that are too old."""

from __future__ import annotations

import asyncio

import pytest
from aiormq import exceptions as sdk

from gateways.rabbitmq.connection import PACKAGES, check_server
from gateways.rabbitmq.errors import MAX_DETAIL, Where, fault_of, translated
from pump.errors import (
    AccessDenied,
    ConfigurationError,
    ConnectionFailed,
    MessageTooLarge,
    PumpError,
    QueueMismatch,
    QueueNotFound,
    Throttled,
)

WHERE = Where("amqp://broker:5672/", "declaring", "orders")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (sdk.ChannelNotFoundEntity("NOT_FOUND"), QueueNotFound),
        (OverflowError("timestamp out of range"), ConnectionFailed),
        (RecursionError("maximum recursion depth exceeded"), ConnectionFailed),
        (sdk.ChannelAccessRefused("ACCESS_REFUSED"), AccessDenied),
        (sdk.ChannelLockedResource("RESOURCE_LOCKED"), AccessDenied),
        (sdk.ChannelPreconditionFailed("inequivalent arg"), QueueMismatch),
        (sdk.ProbableAuthenticationError("ACCESS_REFUSED"), AccessDenied),
        (sdk.ConnectionClosed(320, "CONNECTION_FORCED"), ConnectionFailed),
        (sdk.ConnectionClosed(530, "access to vhost 'x' refused"), AccessDenied),
        (sdk.ConnectionClosed(530, "vhost x not found"), AccessDenied),
        (sdk.ConnectionInternalError("no quorum for 'q' in vhost 'x'"), ConnectionFailed),
        (sdk.InvalidFrameError("nonsense"), ConnectionFailed),
        (sdk.ChannelInvalidStateError("closed"), ConnectionFailed),
        (sdk.AMQPConnectionError("reset"), ConnectionFailed),
        (sdk.DeliveryError(None, None), Throttled),  # type: ignore[arg-type]
        (ConnectionResetError(104, "reset"), ConnectionFailed),
        (TimeoutError(), ConnectionFailed),
        (RuntimeError("Connection closed"), ConnectionFailed),
        (Exception(), ConnectionFailed),
    ],
)
def test_when_the_sdk_raises_then_it_is_one_of_ours_that_says_what_to_do(
    error: Exception, kind: type[PumpError]
) -> None:
    with pytest.raises(kind) as caught, translated(WHERE):
        raise error

    assert caught.value.__cause__ is error


def test_when_an_error_is_nobodys_we_know_then_it_is_raised_as_it_is() -> None:
    """A mistake of ours must not look like the network's."""
    assert fault_of(KeyError("x"), WHERE) is None
    with pytest.raises(ZeroDivisionError), translated(WHERE):
        _ = 1 / 0


def test_when_a_body_is_over_the_brokers_own_limit_then_the_error_says_so_with_both_sizes() -> None:
    """R51: `max_message_size` may be below what the settings say."""
    words = "PRECONDITION_FAILED - message size 2000 is larger than configured max size 1000"

    fault = fault_of(sdk.ChannelPreconditionFailed(words), WHERE)

    assert isinstance(fault, MessageTooLarge)
    assert (fault.queue, fault.size, fault.max_size) == ("orders", 2000, 1000)


def test_when_the_broker_talks_at_length_then_the_error_is_short() -> None:
    fault = fault_of(sdk.ChannelPreconditionFailed("x" * 5000), WHERE)

    assert isinstance(fault, QueueMismatch)
    assert len(fault.detail) == MAX_DETAIL


async def test_when_a_task_is_cancelled_then_the_cancellation_goes_through() -> None:
    """Law 6."""
    started = asyncio.Event()

    async def wait() -> None:
        with translated(WHERE):
            started.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await started.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_when_the_sdk_cancels_a_call_of_its_own_then_the_connection_has_failed() -> None:
    """R51: it does so with calls whose connection was closed."""
    call = asyncio.get_running_loop().create_future()
    call.cancel()

    with pytest.raises(ConnectionFailed), translated(WHERE):
        await call


def test_when_the_sdk_is_the_one_we_need_then_nothing_is_said() -> None:
    """R77."""
    PACKAGES.check_installed()


@pytest.mark.parametrize("found", [None, "9.5.1"])
def test_when_the_sdk_is_missing_or_old_then_the_error_says_what_to_install(
    found: str | None,
) -> None:
    """R77."""
    with pytest.raises(ConfigurationError, match=r"pip install .*pumphouse\[rabbitmq\]"):
        PACKAGES.check("aio-pika", found)


def test_when_the_broker_is_too_old_then_the_error_says_which_one_is_needed() -> None:
    """R77; one that does not say its version is tried."""
    with pytest.raises(ConfigurationError, match=r"RabbitMQ >= 3\.10"):
        check_server("3.9.29")

    for version in ("3.10.0", "3.13.1", "4.2.0-rc.1", ""):
        check_server(version)
