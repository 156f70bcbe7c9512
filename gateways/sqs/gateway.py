"""The SQS gateway: queues of AWS, or of anything that speaks its API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from pump.capabilities import Capabilities
from pump.clock import SYSTEM_CLOCK, Clock
from pump.errors import (
    ConfigurationError,
    GatewayError,
    QueueMismatch,
    QueueNotFound,
    UnsupportedOperation,
)
from pump.findings import Finding, HandlerTimes
from pump.message import Message
from pump.observability import vocabulary
from pump.observability.log import get_logger
from pump.observability.vocabulary import QUEUE_DIFFERS
from pump.ports import (
    AdminPort,
    ConsumerPort,
    Gateway,
    ProducerPort,
    PushedRecord,
    PushPort,
    QueueStats,
    SessionPort,
)
from pump.subscription import MakeChannels, QueueSpec, Subscription

from .._aws.sdk import transport_for
from .._aws.sdk_transport import CountingTransport, Reply, Transport
from .._kit.queues import stats_of_all
from .calls import SQS, QueueAddress, QueueCalls, QueueUrls
from .claims import Claims
from .consumer import SqsConsumer
from .doctor import examine
from .events import PushedMessages, is_from, records_of
from .producer import SqsProducer
from .queue_settings import QueueSettings
from .sessions import SqsSession, accept, session_consumption
from .settings import SqsSettings
from .settling import SqsReceipts
from .topics import Topics

CLOSING_S = 30.0
"""How long closing waits: for the longest poll, and then for what it brings to be handed back."""
_log = get_logger("gateways.sqs")


class SqsGateway:
    """One account's queues in one region, through boto3, aioboto3 or `lean`."""

    def __init__(
        self,
        settings: SqsSettings | None = None,
        clock: Clock = SYSTEM_CLOCK,
        *,
        transport: Transport | None = None,
    ) -> None:
        self._settings = settings or SqsSettings()
        self._clock = clock
        given = transport or transport_for(self._settings.aws, clock)
        self._transport = CountingTransport(given, "sqs")
        self._urls = QueueUrls(self._transport, owner=self._settings.owner)
        claim_check = self._settings.claim_check
        self._claims = None if claim_check is None else Claims(self._transport, claim_check)
        self._consumers: WeakSet[SqsConsumer] = WeakSet()
        self._sessions: set[SqsSession] = set()
        self._receipts: dict[str, SqsReceipts] = {}

    def __repr__(self) -> str:
        return f"SqsGateway({self._settings!r})"

    @property
    def capabilities(self) -> Capabilities:
        return SQS

    @property
    def request_counts(self) -> Mapping[str, int]:
        """Requests to SQS so far, by operation; they are what AWS bills."""
        return self._transport.counts

    async def open(self) -> None:
        """Checks the SDK; the network is first used by the first operation."""
        await self._transport.open()

    async def aclose(self) -> None:
        """Hands back what sessions hold that were left open, and ends polls that were cancelled but
        not answered, as each one's own close does. From an SQS that does not answer it goes back
        when its leases end: closing does not wait for that.
        """
        try:
            async with self._clock.timeout(CLOSING_S):
                await asyncio.gather(*(_let_go(session) for session in list(self._sessions)))
                await asyncio.gather(*(consumer.aclose() for consumer in list(self._consumers)))
        except TimeoutError:
            detail = f"not everything was handed back within {CLOSING_S:g} s"
            _log.warning(vocabulary.SETTLE_FAILED, error=detail)
        finally:
            await self._transport.aclose()

    def consumer(self, subscription: Subscription) -> ConsumerPort:
        """`ConfigurationError` for queues that SQS cannot offer, such as strict order on one
        that is not FIFO.
        """
        _check_queues(subscription)
        consumer = SqsConsumer(
            self._calls(subscription.queue),
            subscription,
            # What one consumer of a queue received, another one may settle.
            self._receipts.setdefault(subscription.queue, SqsReceipts()),
            clock=self._clock,
            claims=self._claims,
            silence_s=self._settings.silence_s,
        )
        self._consumers.add(consumer)
        return consumer

    async def accept_session(
        self, subscription: Subscription, session: str | None, *, wait_s: float
    ) -> SessionPort | None:
        """The next message group of a FIFO queue; SQS does not let us choose (`sessions`)."""
        consumer = self.consumer(session_consumption(subscription, session))
        accepted = await accept(consumer, subscription, wait_s=wait_s, clock=self._clock)
        if accepted is not None:
            self._sessions.add(accepted)
            accepted.on_closed = self._sessions.discard
        return accepted

    async def remove_queues(self, queues: Sequence[str]) -> None:
        """Delete these queues with everything in them; one that is not there counts as removed."""
        for queue in queues:
            with suppress(QueueNotFound):
                await self._calls(queue).call("delete_queue", {})
            self._urls.forget(queue)

    def pushed_records(self, event: object) -> Sequence[PushedRecord]:
        """Those of an event with which Lambda invokes a function (`events`)."""
        return records_of(event)

    def is_pushed_to(self, record: PushedRecord, subscription: Subscription) -> bool:
        settings = self._settings
        return is_from(
            record.source, subscription.queue, owner=settings.owner, region=settings.aws.region
        )

    def push_port(self, subscription: Subscription) -> PushPort:
        """`ConfigurationError` as for a consumer."""
        _check_queues(subscription)
        return PushedMessages(
            self._calls(subscription.queue), subscription, clock=self._clock, claims=self._claims
        )

    def producer(self, queue: str) -> ProducerPort:
        return SqsProducer(self._calls(queue), clock=self._clock, claims=self._claims)

    def admin(self) -> AdminPort:
        return SqsAdmin(
            self._transport, self._urls, clock=self._clock, prefix=self._settings.prefix
        )

    async def examine(
        self, subscriptions: Sequence[Subscription], observed: Mapping[str, HandlerTimes]
    ) -> Sequence[Finding]:
        return await examine(self._transport, self._urls, subscriptions, observed)

    def _calls(self, queue: str) -> QueueCalls:
        return QueueCalls(self._transport, self._urls, queue)


async def _let_go(session: SqsSession) -> None:
    # What SQS cannot be told of runs out by itself.
    with suppress(GatewayError):
        await session.aclose()


def _check_queues(subscription: Subscription) -> None:
    for spec in subscription.queue_specs():
        QueueSettings.from_spec(spec)


def from_url(url: str, clock: Clock | None = None) -> Gateway:
    """`sqs://eu-west-1`, or `sqs://` for the region that the SDK finds; see `SqsSettings`."""
    return SqsGateway(SqsSettings.from_url(url), SYSTEM_CLOCK if clock is None else clock)


# The caretaker of SQS queues: makes, checks, lists and empties them.

LIST_PAGE = 1000
# SQS says that a new queue may take a second to be known everywhere.
CREATION_LOOKS = 10
CREATION_PAUSE_S = 1.0

_VISIBLE = "ApproximateNumberOfMessages"
_IN_FLIGHT = "ApproximateNumberOfMessagesNotVisible"
_DELAYED = "ApproximateNumberOfMessagesDelayed"
_COUNTS = [_VISIBLE, _IN_FLIGHT, _DELAYED]

_admin_log = get_logger("pump.gateways.sqs")


class SqsAdmin:
    """Looks after the queues of one account and region. Lists those whose name starts with
    `prefix`.
    """

    def __init__(
        self, transport: Transport, urls: QueueUrls, *, clock: Clock, prefix: str = ""
    ) -> None:
        self._transport = transport
        self._urls = urls
        self._clock = clock
        self._prefix = prefix
        self._topics = Topics(transport)

    async def ensure(self, spec: QueueSpec, make: MakeChannels) -> None:
        """A queue that exists is never changed, but for the SNS subscription that was asked for:
        creating warns of the differences, validating raises them.

        `ConfigurationError` and `UnsupportedOperation` when SQS has no such queue to offer, also
        when the queue is assumed; and when a queue that is missing is not ours to make.
        """
        settings = QueueSettings.from_spec(spec)
        if make is MakeChannels.CREATE:
            await self._create(settings)
        elif make is MakeChannels.VALIDATE:
            await self._validate(settings)

    async def queues(self) -> Sequence[QueueStats]:
        """Every queue of this account and region, by name.

        The counts are estimates of SQS, about a minute behind; the age of the oldest message is
        not among them (CloudWatch has it).
        """
        return await stats_of_all(self._queue_urls(), self._stats, gateway="pumphouse-sqs")

    async def stats(self, queue: str) -> QueueStats:
        """As estimated, under the name that was given."""
        return _stats_of(queue, await self._describe(queue, _COUNTS))

    async def peek(self, queue: str, *, max_count: int = 10) -> Sequence[Message]:
        """Not to be had: raises `UnsupportedOperation`."""
        raise UnsupportedOperation(
            "sqs",
            "peek",
            "on SQS a look is a receive: it counts as an attempt and hides the message from others",
        )

    async def purge(self, queue: str) -> int:
        """Remove every message and return SQS's estimate of how many there were.

        SQS takes up to a minute, and may also take what is sent meanwhile; it refuses a second
        purge within that minute (`Throttled`).
        """
        counts = await self._describe(queue, _COUNTS)
        await self._call(queue, "purge_queue")
        return sum(int(count) for count in counts.values())

    async def _validate(self, settings: QueueSettings) -> None:
        attributes = await self._look(settings)
        differences = await self._differences(settings, attributes)
        if settings.topic is not None:
            arn = attributes["QueueArn"]
            differences += await self._topics.differences(settings.topic, queue_arn=arn)
        if differences:
            raise QueueMismatch(settings.address.given, "; ".join(differences))

    async def _create(self, settings: QueueSettings) -> None:
        queue = settings.address.given
        try:
            attributes = await self._look(settings)
        except QueueNotFound:
            attributes = await self._make(settings)
        else:
            await self._warn_of_differences(settings, attributes)
        if settings.topic is not None:
            url = await self._urls.url_of(queue)
            await self._topics.subscribe(
                settings.topic, queue=queue, url=url, attributes=attributes
            )

    async def _warn_of_differences(
        self, settings: QueueSettings, attributes: Mapping[str, str]
    ) -> None:
        if differences := await self._differences(settings, attributes):
            _admin_log.warning(QUEUE_DIFFERS, queue=settings.address.given, differences=differences)

    async def _look(self, settings: QueueSettings) -> dict[str, str]:
        address = settings.address
        # What was known before may be gone by now.
        self._urls.forget(address.given)
        await self._urls.url_of(address.given)
        if address.url is None and not settings.has_demands:
            return {}
        return await self._describe(address.given, ["All"])

    async def _differences(
        self, settings: QueueSettings, attributes: Mapping[str, str]
    ) -> list[str]:
        if not settings.has_demands:
            return []
        queue = settings.address.given
        _check_kind(settings.address, attributes)
        tags = (await self._call(queue, "list_queue_tags")).get("Tags") if settings.tags else None
        return settings.differences(
            attributes, dead_letter_arn=await self._dead_letter_arn(settings), tags=tags or {}
        )

    async def _make(self, settings: QueueSettings) -> dict[str, str]:
        address = settings.address
        self._check_is_ours(address)
        request: dict[str, Any] = {
            "QueueName": address.name,
            "Attributes": settings.creation(dead_letter_arn=await self._dead_letter_arn(settings)),
        }
        if settings.tags:
            request["tags"] = dict(settings.tags)
        try:
            reply = await self._transport.call("sqs", "create_queue", request, target=address.given)
        except QueueMismatch:
            # Another client made it meanwhile, and otherwise: as good as having found it.
            attributes = await self._look(settings)
            await self._warn_of_differences(settings, attributes)
            return attributes
        self._urls.remember(address.given, reply["QueueUrl"])
        return await self._await_queue(address.given)

    async def _await_queue(self, queue: str) -> dict[str, str]:
        for _ in range(CREATION_LOOKS):
            url = await self._urls.url_of(queue)
            try:
                return await self._describe(queue, ["All"])
            except QueueNotFound:
                self._urls.remember(queue, url)
                await self._clock.sleep(CREATION_PAUSE_S)
        return await self._describe(queue, ["All"])

    def _check_is_ours(self, address: QueueAddress) -> None:
        if address.url is None and self._urls.owner_of(address) is None:
            return
        raise ConfigurationError(
            "QueueSpec.name",
            address.given,
            "there is no such queue, or we may not see it, and one of another account, or given "
            "by URL or ARN, is not made here; make it where it belongs, or give its name alone",
        )

    async def _dead_letter_arn(self, settings: QueueSettings) -> str | None:
        if settings.dead_letter is None:
            return None
        reply = await self._describe(settings.dead_letter.given, ["QueueArn"])
        return reply["QueueArn"]

    async def _queue_urls(self) -> AsyncIterator[str]:
        # Without a page size SQS stops at 1,000 and does not say so.
        request: dict[str, Any] = {"MaxResults": LIST_PAGE}
        if self._prefix:
            request["QueueNamePrefix"] = self._prefix
        while True:
            page = await self._transport.call("sqs", "list_queues", request)
            for url in page.get("QueueUrls", []):
                yield url
            if not page.get("NextToken"):
                return
            request["NextToken"] = page["NextToken"]

    async def _stats(self, url: str) -> QueueStats:
        name = QueueAddress.parse(url).name
        request = {"QueueUrl": url, "AttributeNames": _COUNTS}
        reply = await self._transport.call("sqs", "get_queue_attributes", request, target=name)
        return _stats_of(name, reply["Attributes"])

    async def _describe(self, queue: str, names: Sequence[str]) -> dict[str, str]:
        reply = await self._call(queue, "get_queue_attributes", AttributeNames=list(names))
        return dict(reply["Attributes"])

    async def _call(self, queue: str, operation: str, **request: Any) -> Reply:
        return await QueueCalls(self._transport, self._urls, queue).call(operation, request)


def _stats_of(name: str, counts: Mapping[str, str]) -> QueueStats:
    return QueueStats(
        name=name,
        visible=int(counts[_VISIBLE]),
        in_flight=int(counts[_IN_FLIGHT]),
        delayed=int(counts[_DELAYED]),
    )


def _check_kind(address: QueueAddress, attributes: Mapping[str, str]) -> None:
    is_fifo = attributes.get("FifoQueue") == "true"
    if is_fifo != address.is_fifo:
        kinds = ("FIFO", "standard") if is_fifo else ("standard", "FIFO")
        raise QueueMismatch(address.given, "it is a {} queue, asked for {}".format(*kinds))
