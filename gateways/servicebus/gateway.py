"""The Service Bus gateway: queues of one namespace, through azure-servicebus."""

from __future__ import annotations

import asyncio
from weakref import WeakSet

from pump.capabilities import Capabilities
from pump.clock import SYSTEM_CLOCK, Clock
from pump.observability import vocabulary
from pump.observability.log import get_logger
from pump.outcome import ACK, Settlement
from pump.ports import AdminPort, ConsumerPort, Gateway, ProducerPort, SessionPort
from pump.subscription import Subscription

from .admin import ServiceBusAdmin
from .connection import Connections
from .consumer import ServiceBusConsumer
from .leases import Terms
from .limits import capabilities_with
from .names import sendable_name
from .producer import ServiceBusProducer
from .queue_settings import check_subscription
from .session import ServiceBusSession
from .sessions import Sessions
from .settings import ServiceBusSettings
from .settling import Settling
from .tap import Tap

HANDING_BACK_S = 10.0
"""How long closing waits for what is in hand to be handed back."""
_log = get_logger("gateways.servicebus")


class ServiceBusGateway:
    """One namespace. Every connection is made when it is needed."""

    def __init__(self, settings: ServiceBusSettings, clock: Clock = SYSTEM_CLOCK) -> None:
        self._settings = settings
        self._clock = clock
        self._capabilities = capabilities_with(settings)
        self._connections = Connections(settings, clock)
        self._settlings: dict[str, Settling] = {}
        self._taps: dict[str, Tap] = {}
        self._sessions: WeakSet[ServiceBusSession] = WeakSet()

    def __repr__(self) -> str:
        return f"ServiceBusGateway({self._settings!r})"

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    async def open(self) -> None:
        """Checks the SDK, and that the namespace can be reached; not who we are to it."""
        await self._connections.open()

    async def aclose(self) -> None:
        """What is in hand goes back to its queue at once. From a service that does not answer it
        goes back when its locks end: closing does not wait for that.
        """
        try:
            async with self._clock.timeout(HANDING_BACK_S):
                await asyncio.gather(*(each.aclose() for each in self._taps.values()))
                await asyncio.gather(
                    *(each.aclose() for each in list(self._sessions)),
                    *(
                        each.hand_back(list(each.leases), is_tried=True)
                        for each in self._settlings.values()
                    ),
                )
        except TimeoutError:
            detail = f"not everything was handed back within {HANDING_BACK_S:g} s"
            _log.warning(vocabulary.SETTLE_FAILED, error=detail)
        finally:
            for each in self._settlings.values():
                each.aclose()
            await self._connections.aclose()

    def consumer(self, subscription: Subscription) -> ConsumerPort:
        """`UnsupportedOperation` for queues that Service Bus cannot offer, such as strict order."""
        check_subscription(subscription)
        queue = subscription.queue
        terms = Terms(
            lease_s=subscription.lease.total_seconds(),
            max_receive_count=subscription.max_receive_count,
        )
        settling = self._settling(queue)
        settling.terms = terms
        return ServiceBusConsumer(queue, terms, self._tap(queue), settling, clock=self._clock)

    async def accept_session(
        self, subscription: Subscription, session: str | None, *, wait_s: float
    ) -> SessionPort | None:
        """Of queues made with `options={"sessions": True}`, whose messages are received so only."""
        accepted = await Sessions(self._connections, subscription).accept(session, wait_s=wait_s)
        if accepted is not None:
            self._sessions.add(accepted)
        return accepted

    def producer(self, queue: str) -> ProducerPort:
        return ServiceBusProducer(self._connections, sendable_name(queue))

    def admin(self) -> AdminPort:
        return ServiceBusAdmin(
            self._connections,
            held_of=lambda queue: len(self._settling(queue).leases),
            drop_held_of=self._drop_held_of,
        )

    def _tap(self, queue: str) -> Tap:
        if queue not in self._taps:
            self._taps[queue] = Tap(self._connections, queue, self._settling(queue).discard)
        return self._taps[queue]

    def _settling(self, queue: str) -> Settling:
        # What one consumer of a queue received, another one may settle.
        if queue not in self._settlings:
            self._settlings[queue] = Settling(queue, self._connections)
        return self._settlings[queue]

    async def _drop_held_of(self, queue: str) -> int:
        settling = self._settling(queue)
        held = [Settlement(lease.delivery, ACK) for lease in settling.leases]
        return len(held) - len(await settling.settle(held))


def from_url(url: str, clock: Clock | None = None) -> Gateway:
    """`sb://namespace.servicebus.windows.net`; see `ServiceBusSettings.from_url`."""
    return ServiceBusGateway(
        ServiceBusSettings.from_url(url), SYSTEM_CLOCK if clock is None else clock
    )
