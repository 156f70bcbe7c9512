"""The SDK's edge: the only module that loads azure-servicebus; loaded when a gateway is opened.

Most of what is used here the SDK promises. Four things it does not: many locks are settled, and
renewed, by one request; a link is drained without closing it; links open without pauses and have no
keep-alive task, for which closing them would wait; and a session's link keeps what comes unasked.
`tests/gateways/servicebus/test_sdk.py` holds the SDK to them.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar, cast
from urllib.parse import urlsplit

import msgspec
from azure.core.credentials_async import AsyncTokenCredential
from azure.core.pipeline.transport import AioHttpTransport
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceivedMessage,
    TransportType,
)
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from pump.clock import Clock, yield_to_loop

from .names import SEND_BATCH
from .settings import ServiceBusSettings
from .wire import ServiceBusArrival, ServiceBusParcel

__all__ = ["Administration", "Client", "Receiver", "Sender"]
Client = ServiceBusClient
Receiver = ServiceBusReceiver
Sender = ServiceBusSender
Administration = ServiceBusAdministrationClient

L = TypeVar("L", ServiceBusReceiver, ServiceBusSender)
COMPLETED: Final = "completed"
ABANDONED: Final = "abandoned"
DEAD_LETTERED: Final = "suspended"
"""How the service calls what becomes of a message."""
_OPTIONS: Final[Mapping[str, Any]] = {"retry_total": 0}
"""No retries of the SDK's own: a send that it repeats may arrive twice, and a pause is not ours."""
_LEVELS: Final = {
    "azure.core": logging.WARNING,
    "azure.identity": logging.WARNING,
    "azure.servicebus": logging.CRITICAL,
}


class PlainTransport(AioHttpTransport):  # type: ignore[misc]
    """Takes the SDK's HTTPS requests to an emulator, which speaks HTTP."""

    def __init__(self, host: str) -> None:
        super().__init__()
        self._host = host

    async def send(self, request: Any, **options: Any) -> Any:
        request.url = urlsplit(request.url)._replace(scheme="http", netloc=self._host).geturl()
        return await super().send(request, **options)


def hush() -> None:
    """Keep the SDK's own logs to itself, unless they were set up by name: each frame is an INFO,
    and each failure a stack trace, although it is raised to us and told in our words.
    """
    for name, level in _LEVELS.items():
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(level)


def credential_of(settings: ServiceBusSettings) -> Any:
    """Who logs in where there is no key; None where there is one."""
    if settings.key is not None:
        return None
    from azure.identity.aio import DefaultAzureCredential

    return DefaultAzureCredential()


def client_of(settings: ServiceBusSettings, credential: Any) -> Client:
    """What makes senders and receivers; connects nothing."""
    kind = TransportType.AmqpOverWebsocket if settings.is_websocket else TransportType.Amqp
    if credential is None:
        return ServiceBusClient.from_connection_string(
            settings.connection_string, transport_type=kind, **_OPTIONS
        )
    return ServiceBusClient(
        settings.namespace,
        cast(AsyncTokenCredential, credential),
        transport_type=kind,
        **_OPTIONS,
    )


def administration_of(settings: ServiceBusSettings, credential: Any) -> Administration:
    """What makes and describes queues; connects nothing."""
    if credential is not None:
        return ServiceBusAdministrationClient(settings.namespace, credential, **_OPTIONS)
    options: dict[str, Any] = dict(_OPTIONS)
    if settings.is_emulator:
        options["transport"] = PlainTransport(f"{settings.namespace}:{settings.admin_port}")
    return ServiceBusAdministrationClient.from_connection_string(
        settings.connection_string, **options
    )


def sender_of(client: Client, queue: str, *, read_s: float) -> Sender:
    """A sender to a queue."""
    return _lean(client.get_queue_sender(queue, socket_timeout=read_s))


def receiver_of(client: Client, queue: str, *, read_s: float) -> Receiver:
    """A receiver of a queue, or of its dead letters."""
    return _sociable(_lean(client.get_queue_receiver(queue, socket_timeout=read_s)), read_s)


def session_receiver_of(
    client: Client, queue: str, session_id: str | None, *, wait_s: float, read_s: float
) -> Receiver:
    """A receiver of one session: the named one, or for None the next that is free."""
    wanted = NEXT_AVAILABLE_SESSION if session_id is None else session_id
    receiver = client.get_queue_receiver(
        queue, session_id=cast(str, wanted), max_wait_time=wait_s, socket_timeout=read_s
    )
    return _keeping(_sociable(_lean(receiver), read_s))


async def open_link(receiver: Receiver) -> None:
    """Connect, unless that was done before."""
    await receiver.__aenter__()


async def send(sender: Sender, parcels: Sequence[ServiceBusParcel], due_at: datetime | None) -> int:
    """Send as many as one batch holds, at most a hundred, and return how many those are."""
    messages = [outgoing(parcel, due_at) for parcel in parcels[:SEND_BATCH]]
    if len(messages) == 1:
        # A batch of one could be too large where the message alone is not.
        await sender.send_messages(messages[0])
        return 1
    batch = await sender.create_message_batch()
    for message in messages:
        try:
            batch.add_message(message)
        except ValueError:  # it is full
            break
    if not len(batch):
        await sender.send_messages(messages[0])
        return 1
    await sender.send_messages(batch)
    return len(batch)


async def schedule(
    sender: Sender, parcels: Sequence[ServiceBusParcel], due_at: datetime
) -> Sequence[int]:
    """Schedule all in one request; the numbers returned can be cancelled."""
    messages = [outgoing(parcel, None) for parcel in parcels]
    return [int(number) for number in await sender.schedule_messages(messages, due_at)]


async def cancel(sender: Sender, numbers: Sequence[int]) -> None:
    """Take back what was scheduled."""
    await sender.cancel_scheduled_messages(list(numbers))


async def receive(
    receiver: Receiver, count: int, wait_s: float, clock: Clock
) -> Sequence[ServiceBusArrival]:
    """What comes within `wait_s`, and shortly after the first; credit that is left stays."""
    # The time to connect is not part of it.
    await open_link(receiver)
    received = await receiver.receive_messages(max_message_count=count, max_wait_time=wait_s)
    return [arrival_of(message, clock.time_s()) for message in received]


async def revoke(receiver: Receiver) -> None:
    """Take back the credit that is left; what comes meanwhile is released, uncounted."""
    unpromised: Any = receiver
    handler = unpromised._handler
    if handler is not None and getattr(handler, "_link", None) is not None:
        await unpromised._amqp_transport.drain_and_release_messages_async(handler)


async def settle(
    receiver: Receiver,
    outcome: str,
    tokens: Iterable[str],
    *,
    reason: str = "",
    detail: str = "",
    changes: Mapping[str, object] | None = None,
) -> None:
    """Settle these locks by one request, through whichever link they came; `changes` are made to
    the properties of what is abandoned.
    """
    said: dict[str, object] = {}
    if outcome == DEAD_LETTERED:
        said = {"deadletter-reason": reason, "deadletter-description": detail}
    elif changes:
        said = {"properties-to-modify": dict(changes)}
    unpromised: Any = receiver
    await unpromised._settle_message_via_mgmt_link(
        outcome,
        [uuid.UUID(token) for token in tokens],
        # The SDK adds to the request whatever is given here.
        dead_letter_details=said or None,
    )


async def renew(receiver: Receiver, tokens: Iterable[str], now_s: float) -> Sequence[float]:
    """Renew these locks by one request; for how long each lasts now."""
    unpromised: Any = receiver
    answer = await unpromised._renew_locks(*(uuid.UUID(token) for token in tokens))
    return [float(end_ms) / 1000 - now_s for end_ms in answer[b"expirations"]]


async def peek(
    receiver: Receiver, count: int, first: int, now_s: float
) -> Sequence[tuple[ServiceBusArrival, bool]]:
    """What is stored from this sequence number on, each with whether it waits for its time."""
    seen = await receiver.peek_messages(count, sequence_number=first)
    return [(arrival_of(each, now_s), _is_scheduled(each, now_s)) for each in seen]


def session_of(receiver: Receiver) -> str:
    """The id of the session that a receiver has accepted."""
    return str(receiver.session.session_id)


def session_lock_s(receiver: Receiver, now_s: float) -> float:
    """For how long the session's lock lasts."""
    until = receiver.session.locked_until_utc
    return 0.0 if until is None else until.timestamp() - now_s


async def renew_session(receiver: Receiver, now_s: float) -> float:
    """Renew the session's lock; for how long it lasts now."""
    return (await receiver.session.renew_lock()).timestamp() - now_s


async def get_state(receiver: Receiver) -> bytes | None:
    """What is noted about the session."""
    state: Any = await receiver.session.get_state()
    return None if state is None else bytes(state)


async def set_state(receiver: Receiver, state: bytes | None) -> None:
    """Note something about the session."""
    await receiver.session.set_state(cast(Any, state))


def arrival_of(message: ServiceBusReceivedMessage, now_s: float) -> ServiceBusArrival:
    """What a message of the SDK is to us."""
    properties = {
        "message_id": message.message_id,
        "subject": message.subject,
        "content_type": message.content_type,
        "correlation_id": message.correlation_id,
        "reply_to": message.reply_to,
        "session_id": message.session_id,
    }
    headers = {_plain(key): _plain(value) for key, value in _application_properties(message)}
    enqueued, until = message.enqueued_time_utc, message.locked_until_utc
    return ServiceBusArrival(
        parcel=ServiceBusParcel(
            body=_body(message),
            properties={key: str(text) for key, text in properties.items() if text is not None},
            headers={str(key): value for key, value in headers.items()},
        ),
        token="" if message.lock_token is None else str(message.lock_token),
        sequence=int(message.sequence_number or 0),
        delivery_count=int(message.delivery_count or 0),
        enqueued_at_s=None if enqueued is None else enqueued.timestamp(),
        lock_s=0.0 if until is None else until.timestamp() - now_s,
        dead_letter_source=message.dead_letter_source,
    )


def outgoing(parcel: ServiceBusParcel, due_at: datetime | None) -> ServiceBusMessage:
    """What the SDK sends for a parcel."""
    return ServiceBusMessage(
        parcel.body,
        application_properties=cast(Any, dict(parcel.headers)),
        scheduled_enqueue_time_utc=due_at,
        **cast(Any, dict(parcel.properties)),
    )


def _lean(link: L) -> L:
    """Without the SDK's keep-alive task, which reads a link without being asked, and
    without its pauses between one frame and the next while a link opens. Closing it also closes a
    connection that was only half open.
    """
    unpromised: Any = link
    create: Callable[[Any], None] = unpromised._create_handler
    close: Callable[[], Awaitable[None]] = link.close
    handlers: list[Any] = []
    connections: list[Any] = []

    def create_handler(auth: Any) -> None:
        create(auth)
        handlers.append(unpromised._handler)
        _hurry(unpromised._handler, connections)

    async def close_all() -> None:
        try:
            await close()
        finally:
            for connection in (*connections, *(each._connection for each in handlers)):
                _abort(connection)

    unpromised._create_handler = create_handler
    unpromised.close = close_all
    return link


def _sociable(receiver: Receiver, read_s: float) -> Receiver:
    """Waits less than the SDK would for more after its first message."""
    unpromised: Any = receiver
    unpromised._further_pull_receive_timeout = read_s / 2
    return receiver


def _keeping(receiver: Receiver) -> Receiver:
    """Keeps what comes while something else is asked, for its next receive. The SDK would release
    it, and what was sent behind it would overtake it.
    """
    unpromised: Any = receiver
    create: Callable[[Any], None] = unpromised._create_handler

    def create_handler(auth: Any) -> None:
        create(auth)
        # Without the SDK's own, the client's is left, which has a buffer.
        vars(unpromised._handler).pop("_message_received_async", None)

    unpromised._create_handler = create_handler
    return receiver


def _hurry(handler: Any, connections: list[Any]) -> None:
    handler._keep_alive_interval = 0
    is_ready: Callable[[], Awaitable[bool]] = handler.client_ready_async

    async def until_ready() -> bool:
        if handler._connection not in connections:
            connections.append(handler._connection)
        # Each turn waits for a frame; the caller bounds the whole.
        while not await is_ready():
            await yield_to_loop()
        return True

    handler.client_ready_async = until_ready


def _abort(connection: Any) -> None:
    """Close its socket if the SDK has not: it forgets a connection that has failed."""
    writer = getattr(getattr(connection, "_transport", None), "writer", None)
    if writer is not None:
        writer.transport.abort()


def _application_properties(message: ServiceBusReceivedMessage) -> Iterable[tuple[Any, Any]]:
    return (message.application_properties or {}).items()


def _plain(value: Any) -> Any:
    """AMQP's text comes as octets."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _body(message: ServiceBusReceivedMessage) -> bytes:
    """The body's octets; a body that is a value, as foreign producers send it, as text or JSON."""
    body = message.body
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode("utf-8", "surrogatepass")
    if message.body_type.value == "data":
        return b"".join(bytes(part) for part in cast(Iterable[bytes], body))
    value = list(cast(Iterable[Any], body)) if message.body_type.value == "sequence" else body
    return msgspec.json.encode(_readable(value), enc_hook=str)


def _readable(value: Any) -> Any:
    match value:
        case bytes():
            return _plain(value)
        case Mapping():
            return {str(_plain(key)): _readable(each) for key, each in value.items()}
        case list() | tuple():
            return [_readable(each) for each in value]
    return value


def _is_scheduled(message: ServiceBusReceivedMessage, now_s: float) -> bool:
    due = message.scheduled_enqueue_time_utc
    is_waiting = message.state == ServiceBusMessageState.SCHEDULED
    return is_waiting or (due is not None and due.timestamp() > now_s)
