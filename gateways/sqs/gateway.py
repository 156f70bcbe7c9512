"""The SQS gateway: queues of AWS, or of anything that speaks its API."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from weakref import WeakSet

from pump.capabilities import Capabilities
from pump.clock import SYSTEM_CLOCK, Clock
from pump.errors import GatewayError, QueueNotFound
from pump.findings import Finding, HandlerTimes
from pump.observability import vocabulary
from pump.observability.log import get_logger
from pump.ports import (
    AdminPort,
    ConsumerPort,
    Gateway,
    ProducerPort,
    PushedRecord,
    PushPort,
    SessionPort,
)
from pump.subscription import Subscription

from .._aws.factory import transport_for
from .._aws.sdk_transport import CountingTransport
from .._aws.transport import Transport
from .address import QueueUrls
from .admin import SqsAdmin
from .calls import SQS, QueueCalls
from .claims import Claims
from .consumer import SqsConsumer
from .doctor import examine
from .events import PushedMessages, is_from, records_of
from .inbound import SqsReceipts
from .producer import SqsProducer
from .queue_settings import QueueSettings
from .sessions import SqsSession, accept, session_consumption
from .settings import SqsSettings

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
