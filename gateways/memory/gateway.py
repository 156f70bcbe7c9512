"""The memory gateway: an engine without a journal."""

from __future__ import annotations

from urllib.parse import urlsplit
from weakref import WeakValueDictionary

import attrs

from pump.capabilities import Capabilities
from pump.clock import SYSTEM_CLOCK, Clock
from pump.errors import ConfigurationError
from pump.ports import AdminPort, ConsumerPort, Gateway, ProducerPort
from pump.subscription import Subscription

from .._engine.capabilities import ENGINE
from .._engine.engine import Engine
from .._engine.ports import EngineAdmin, EngineConsumer, EngineProducer

CAPABILITIES = attrs.evolve(ENGINE, gateway="memory")

# One broker a name, for as long as a gateway holds it: `memory://name` must find its peers.
_brokers: WeakValueDictionary[str, Engine] = WeakValueDictionary()


class MemoryGateway:
    """Queues in this process; several gateways on one engine share them. One event loop only.

    Messages stay after `aclose` for as long as the object lives, so that a test can look.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK, *, engine: Engine | None = None) -> None:
        self._engine = Engine(clock) if engine is None else engine
        self._owns_engine = engine is None

    @property
    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    async def open(self) -> None:
        self._engine.reopen()

    async def aclose(self) -> None:
        """Send waiting receives home, unless other gateways share the queues."""
        if self._owns_engine:
            self._engine.close()

    def consumer(self, subscription: Subscription) -> ConsumerPort:
        return EngineConsumer(self._engine, subscription.queue, subscription.lease)

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
        engine = _brokers[parts.netloc] = Engine(used)
    return MemoryGateway(used, engine=engine)
