"""Burial: a message that had its last delivery goes to the dead-letter queue, then is done here.

The copy is sent before the original is done: whoever dies in between has the next one send it
again, with the same de-duplication id, for a queue that knows what that is.
"""

from __future__ import annotations

from msgspec.structs import replace

from pump.message import Message
from pump.observability import vocabulary
from pump.observability.log import get_logger

from ..._engine.redrive import dead_letter
from ..store.objects import Written
from .desk import Desk
from .holdings import Holding
from .names import MessageId
from .protocol.tenancy import ack, hand_back

_RETRY_S = 1.0
_log = get_logger("gateways.s3")


class Burial:
    """Moves dead messages of one queue."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def bury(self, holding: Holding) -> None:
        """Move a message in hand. When that fails it is tried again a little later, here or by
        another process.
        """
        try:
            await self._desk.around.send_to(self._target, self._copy(holding))
        except Exception as error:  # broad: whatever the other queue says, nothing is lost
            _log.warning(vocabulary.ROUTING_FAILED, queue=self._target, error=repr(error))
            await self._postpone(holding)
            return
        verdict = await self._desk.driver.run(ack(holding.tenancy))
        if isinstance(verdict, Written):
            self._desk.holdings.forget(holding)
            self._desk.catalogue.note_done(holding.slot)
        else:
            self._desk.note_loss(holding)

    async def _postpone(self, holding: Holding) -> None:
        lease = self._desk.release(holding.lease, _RETRY_S, is_counted=True)
        verdict = await self._desk.driver.run(hand_back(holding.tenancy, lease))
        if isinstance(verdict, Written):
            self._desk.note_release(holding, verdict.etag, lease)
        else:
            self._desk.note_loss(holding)

    @property
    def _target(self) -> str:
        return self._desk.facts.dead_letter_queue or ""

    def _copy(self, holding: Holding) -> Message:
        facts, clock = self._desk.facts, self._desk.around.clock
        return dead_copy(
            holding.message,
            holding.slot.id,
            queue=facts.name,
            attempt=holding.lease.attempt,
            wall_s=clock.time_s(),
        )


def dead_copy(
    message: Message, place: MessageId, *, queue: str, attempt: int, wall_s: float
) -> Message:
    """What goes to the dead-letter queue: the same for everyone who sends it."""
    copy = dead_letter(message, queue=queue, attempt=attempt, wall_s=wall_s)
    return replace(copy, deduplication_id=f"{queue}/{place}")
