"""The messages of a run, and whether the app can read them."""

from __future__ import annotations

from ..bench.measuring import MakeMessage
from ..bench.pacing import Load
from ..clock import Clock
from ..errors import MappingError
from ..message import Delivery, Message
from ..runtime import Runtime
from ..signals import Signal
from ..subscription import Subscription
from .exit_codes import ExitCode
from .failure import Failure
from .reports import request_name


def message_maker(body: bytes, type_name: str, load: Load, clock: Clock) -> MakeMessage:
    """Makes messages that differ in nothing but their id, their time and their group."""

    def make(number: int) -> Message:
        return Message(
            body=body, type=type_name, group=load.group(number), created_at_s=clock.time_s()
        )

    return make


async def check_readable(runtime: Runtime, subscription: Subscription, message: Message) -> None:
    """`Failure` unless the message would reach a handler: thousands that do not measure nothing."""
    consumer = runtime.consumer(subscription)
    try:
        if runtime.sealing is not None:
            message = await runtime.sealing.seal(message, subscription.queue)
        await consumer.read(_as_delivered(message, subscription, runtime.clock))
    except (MappingError, Signal) as error:
        raise Failure(
            f"--body is not what subscription {subscription.name!r} reads: {error}",
            remedy=f"give the JSON of a {request_name(subscription)}, and with --type its type "
            f"where the queue carries several",
            exit_code=ExitCode.USAGE,
        ) from None
    finally:
        await consumer.aclose()


def _as_delivered(message: Message, subscription: Subscription, clock: Clock) -> Delivery:
    return Delivery(
        message=message,
        queue=subscription.queue,
        receipt="",
        attempt=1,
        lease_expires_at_s=clock.now_s() + subscription.lease.total_seconds(),
    )
