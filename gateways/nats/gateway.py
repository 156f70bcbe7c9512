"""The NATS gateway: JetStream streams as queues, through nats-py."""

from __future__ import annotations

import asyncio

import attrs

from pump.capabilities import Capabilities
from pump.clock import SYSTEM_CLOCK, Clock
from pump.ports import AdminPort, ConsumerPort, Gateway, ProducerPort, SessionPort
from pump.subscription import Subscription

from .._kit.connection import BackgroundTasks
from .admin import NatsAdmin
from .connection import JetStream, NatsConnection
from .consumer import NatsConsumer
from .link import Link, ServerRequest
from .names import FORGETFUL_S, NATS
from .producer import NatsProducer
from .queue_settings import KnownQueues, NatsQueueSettings
from .receipts import Receipts, subject_of
from .session import NatsSession
from .sessions import NatsSessions, let_go
from .settings import NatsSettings
from .settling import nak

_RELEASE_S = 2.0
"""How long closing waits for the locks of sessions to be released."""


class NatsGateway:
    """One account's queues on a server or cluster, over one connection."""

    def __init__(self, settings: NatsSettings | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._settings = settings or NatsSettings()
        self._clock = clock
        self._connection = NatsConnection(self._settings, clock)
        self._connection.on_other_server = self._doubt
        self._api = JetStream(self._connection)
        self._known = KnownQueues(self._api, clock)
        self._receipts: dict[str, Receipts] = {}
        self._chores = BackgroundTasks("nats")
        self._sessions: set[NatsSession] = set()

    def __repr__(self) -> str:
        return f"NatsGateway({self._settings!r})"

    @property
    def capabilities(self) -> Capabilities:
        """The largest body is the server's to say, once it is connected to."""
        if self._connection.max_payload == NATS.max_body_bytes:
            return NATS
        return attrs.evolve(NATS, max_body_bytes=self._connection.max_payload)

    async def open(self) -> None:
        """Checks the SDK and the server's version."""
        await self._connection.open()

    async def aclose(self) -> None:
        """Releases the sessions that are still open; what cannot be, runs out by itself."""
        try:
            async with self._clock.timeout(_RELEASE_S):
                await asyncio.gather(*(let_go(each) for each in self._sessions))
                # Locks acquired for callers that were cancelled are being released.
                await self._chores.finish()
        except TimeoutError:
            pass
        finally:
            await self._connection.aclose()

    def consumer(self, subscription: Subscription) -> ConsumerPort:
        """`ConfigurationError` or `UnsupportedOperation` for queues that NATS cannot offer."""
        for spec in subscription.queue_specs():
            NatsQueueSettings.from_spec(spec)
        # What one consumer of a queue received, another one may settle.
        receipts = self._receipts.setdefault(subscription.queue, Receipts())
        return NatsConsumer(self._api, self._known, subscription, receipts, clock=self._clock)

    async def accept_session(
        self, subscription: Subscription, session: str | None, *, wait_s: float
    ) -> SessionPort | None:
        """Of queues made with `options={"sessions": True}`, whose groups are received so only."""
        sessions = NatsSessions(
            self._api, self._known, subscription, clock=self._clock, chores=self._chores
        )
        accepted = await sessions.accept(session, wait_s=wait_s)
        self._sessions = {each for each in self._sessions if not each.is_over}
        if accepted is not None:
            self._sessions.add(accepted)
        return accepted

    def producer(self, queue: str) -> ProducerPort:
        return NatsProducer(self._api, queue, clock=self._clock)

    def admin(self) -> AdminPort:
        return NatsAdmin(self._api, self._known, clock=self._clock)

    def _doubt(self, alive_until_s: float) -> None:
        since_s, now_s = alive_until_s - FORGETFUL_S, self._clock.now_s()
        again: list[ServerRequest] = []
        for receipts in self._receipts.values():
            receipts.doubt(since_s)
            again += [
                ServerRequest(subject=subject_of(receipt), payload=nak(delay_s))
                for receipt, delay_s in receipts.to_tell_again(since_s, now_s=now_s)
            ]
        if again:
            self._connection.later(lambda link: self._tell_again(link, again))

    async def _tell_again(self, link: Link, deferrals: list[ServerRequest]) -> None:
        """What was deferred; one that is not answered comes when the server has it come."""
        await link.request_all(deferrals, timeout_s=self._settings.request_timeout_s)


def from_url(url: str, clock: Clock | None = None) -> Gateway:
    """`nats://user:password@host:4222`; see `NatsSettings.from_url`."""
    return NatsGateway(NatsSettings.from_url(url), SYSTEM_CLOCK if clock is None else clock)
