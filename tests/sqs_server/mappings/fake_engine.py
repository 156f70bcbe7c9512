"""An engine of a few lines, for what mappings rely on; and messages for it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count

import attrs
import msgspec

from gateways.sqs_server.engine import ReceiptProblem
from gateways.sqs_server.model import Attribute, QueueId, Received, SqsQueueSettings
from pump.clock import Clock
from pump.errors import StorageFailed


@attrs.define(eq=False)
class Held:
    """A message of the fake: where it is in its life."""

    message: Received
    visible_at_s: float = 0.0
    receipt: str = ""


@attrs.define(eq=False)
class FakeQueue:
    """A queue: its settings, its messages in order, its dead letters."""

    settings: SqsQueueSettings
    max_receive_count: int | None = None
    held: list[Held] = attrs.field(factory=list)
    dead: list[str] = attrs.field(factory=list)
    changed: asyncio.Event = attrs.field(factory=asyncio.Event)

    @property
    def bodies(self) -> list[str]:
        return [each.message.body for each in self.held]


class FakeEngine:
    """Just enough of SQS: visibility, receive counts, groups, redrive on receive."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._numbers = count(1)
        self.queues: dict[QueueId, FakeQueue] = {}
        self.receives: list[int] = []
        self.refuses_deletes = False
        self.refuses_receives = False
        self.refuses_changes = False
        self.hangs_on_delete = False
        self.problem: ReceiptProblem | None = None

    def create(
        self, name: str = "orders", *, visibility_s: int = 30, max_receive_count: int | None = None
    ) -> FakeQueue:
        address = QueueId("000000000000", "eu-west-1", name)
        settings = SqsQueueSettings(address=address, visibility_timeout_s=visibility_s)
        queue = self.queues[address] = FakeQueue(settings, max_receive_count)
        return queue

    def send(self, queue: FakeQueue, *bodies: str, group: str | None = None) -> None:
        for body in bodies:
            number = next(self._numbers)
            message = received(body, id=f"id-{number}", group=group, sent_at_s=self._clock.time_s())
            queue.held.append(Held(message))
        queue.changed.set()

    def find(self, address: QueueId) -> FakeQueue | None:
        return self.queues.get(address)

    async def receive(
        self,
        queue: FakeQueue,
        *,
        max_count: int,
        wait_s: float,
        visibility_s: int,
        is_inside: bool,
    ) -> list[Received]:
        if self.refuses_receives:
            raise StorageFailed("queues.db", "no room")
        ends_at_s = self._clock.now_s() + wait_s
        while not (taken := self._take(queue, max_count, visibility_s)):
            if self._clock.now_s() >= ends_at_s:
                return []
            await self._wait(queue, ends_at_s)
        self.receives.append(len(taken))
        return taken

    async def delete(
        self, queue: FakeQueue, receipts: Sequence[str]
    ) -> list[ReceiptProblem | None]:
        if self.refuses_deletes:
            raise StorageFailed("queues.db", "no room")
        if self.hangs_on_delete:
            await asyncio.Event().wait()
        queue.held = [each for each in queue.held if each.receipt not in receipts]
        queue.changed.set()
        return [self.problem for _ in receipts]

    async def change_visibility(
        self, queue: FakeQueue, changes: Sequence[tuple[str, int]]
    ) -> list[None]:
        if self.refuses_changes:
            raise StorageFailed("queues.db", "no room")
        for receipt, seconds in changes:
            for each in queue.held:
                if each.receipt == receipt:
                    each.visible_at_s = self._clock.now_s() + seconds
        queue.changed.set()
        return [None for _ in changes]

    def hidden(self, queue: FakeQueue) -> list[str]:
        now_s = self._clock.now_s()
        return [each.message.body for each in queue.held if each.visible_at_s > now_s]

    async def _wait(self, queue: FakeQueue, ends_at_s: float) -> None:
        queue.changed.clear()
        now_s = self._clock.now_s()
        times = [each.visible_at_s for each in queue.held if each.visible_at_s > now_s]
        timer = self._clock.call_later(min([ends_at_s, *times]) - now_s, queue.changed.set)
        try:
            await queue.changed.wait()
        finally:
            timer.cancel()

    def _take(self, queue: FakeQueue, max_count: int, visibility_s: int) -> list[Received]:
        now_s = self._clock.now_s()
        busy = {each.message.group for each in queue.held if each.visible_at_s > now_s}
        taken: list[Received] = []
        for each in list(queue.held):
            blocked = each.message.group is not None and each.message.group in busy
            if len(taken) == max_count or each.visible_at_s > now_s or blocked:
                continue
            if each.message.receive_count == queue.max_receive_count:
                queue.held.remove(each)
                queue.dead.append(each.message.body)
                continue
            each.receipt = f"receipt-{next(self._numbers)}"
            each.visible_at_s = now_s + visibility_s
            each.message = msgspec.structs.replace(
                each.message,
                receipt=each.receipt,
                receive_count=each.message.receive_count + 1,
                first_received_at_s=each.message.first_received_at_s or self._clock.time_s(),
            )
            taken.append(each.message)
        return taken


def received(
    body: str = "{}",
    *,
    id: str = "id-1",
    group: str | None = None,
    attributes: dict[str, Attribute] | None = None,
    sent_at_s: float = 0.0,
    trace_header: str | None = None,
) -> Received:
    """A message as the engine hands it out."""
    return Received(
        id=id,
        receipt="receipt",
        body=body,
        attributes=attributes or {},
        trace_header=trace_header,
        sender="000000000000",
        sent_at_s=sent_at_s,
        first_received_at_s=0.0,
        receive_count=0,
        group=group,
        deduplication_id=None if group is None else f"dedup-{id}",
        sequence_number=None if group is None else "18870000000000000001",
        dead_letter_source=None,
    )
