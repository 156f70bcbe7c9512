"""The memory gateway: an engine without a journal."""

from __future__ import annotations

from urllib.parse import urlsplit
from weakref import WeakValueDictionary

import attrs

from pump.capabilities import Capabilities
from pump.clock import SYSTEM_CLOCK, Clock
from pump.errors import ConfigurationError
from pump.ports import AdminPort, ConsumerPort, Gateway, ProducerPort, SessionPort
from pump.subscription import Subscription

from .._engine.engine import QueueEngine
from .._engine.ports import (
    ENGINE,
    EngineAdmin,
    EngineConsumer,
    EngineProducer,
    EngineSession,
    EngineSessions,
    accept,
)

CAPABILITIES = attrs.evolve(ENGINE, gateway="memory", has_sessions=True, has_session_choice=True)

# One broker a name, for as long as a gateway holds it: `memory://name` must find its peers.
_brokers: WeakValueDictionary[str, QueueEngine] = WeakValueDictionary()


class MemoryGateway:
    """Queues in this process; several gateways on one engine share them. One event loop only.

    Messages stay after `aclose` for as long as the object lives, so that a test can look.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK, *, engine: QueueEngine | None = None) -> None:
        self._engine = QueueEngine(clock) if engine is None else engine
        self._owns_engine = engine is None
        self._sessions: set[EngineSession] = set()

    @property
    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    async def open(self) -> None:
        self._engine.reopen()

    async def aclose(self) -> None:
        """Release the open sessions, and return waiting receives empty, unless other gateways
        share the queues.
        """
        for session in list(self._sessions):
            await session.aclose()
        if self._owns_engine:
            self._engine.close()

    def consumer(self, subscription: Subscription) -> ConsumerPort:
        return EngineConsumer(self._engine, subscription.queue, subscription.lease)

    async def accept_session(
        self, subscription: Subscription, session: str | None, *, wait_s: float
    ) -> SessionPort | None:
        """Of messages that have a group; others are in no session."""
        engine = self._engine
        accepted = await accept(
            engine, EngineSessions(engine), subscription, session, wait_s=wait_s
        )
        if accepted is not None:
            self._sessions.add(accepted)
            accepted.on_closed = self._sessions.discard
        return accepted

    def producer(self, queue: str) -> ProducerPort:
        return EngineProducer(self._engine, queue)

    def admin(self) -> AdminPort:
        return EngineAdmin(self._engine)


def from_url(url: str, clock: Clock | None = None) -> Gateway:
    """`memory://` is a broker of its own; `memory://name` is shared by all who name it."""
    parts = urlsplit(url)
    if parts.scheme != "memory" or parts.path.strip("/") or parts.query:
        raise ConfigurationError("url", url, "use memory:// or memory://name")
    used = SYSTEM_CLOCK if clock is None else clock
    if not parts.netloc:
        return MemoryGateway(used)
    engine = _brokers.get(parts.netloc)
    if engine is None:
        engine = _brokers[parts.netloc] = QueueEngine(used)
    return MemoryGateway(used, engine=engine)
