"""Saboteurs of native redrive."""

from __future__ import annotations

import attrs
from msgspec.structs import replace

from pump.message import Message, new_id
from pump.outcome import Ack, Action
from pump.subscription import QueueSpec

from ..naive import EVERYTHING, Entry, Queue
from .base import Saboteur


class NeverRedrives(Saboteur):
    def dead_letter(self, queue: Queue, entry: Entry) -> None:
        pass


class RedrivesOneDeliveryLate(Saboteur):
    def dead_letter(self, queue: Queue, entry: Entry) -> None:
        if entry.attempt > (queue.spec.max_receive_count or 0):
            super().dead_letter(queue, entry)


class RedrivesAtTheNextReceiveOnly(Saboteur):
    def dead_letter(self, queue: Queue, entry: Entry) -> None:
        """Leave it for `candidates` to find."""

    def candidates(self, queue: Queue) -> list[Entry]:
        for entry in list(queue.entries):
            if entry.attempt >= (queue.spec.max_receive_count or entry.attempt + 1):
                super().dead_letter(queue, entry)
        return super().candidates(queue)


class DropsInsteadOfRedriving(Saboteur):
    def dead_letter(self, queue: Queue, entry: Entry) -> None:
        queue.entries.remove(entry)


class RedrivesACopy(Saboteur):
    def dead_letter(self, queue: Queue, entry: Entry) -> None:
        super().dead_letter(queue, entry)
        entry.attempt = 0
        queue.entries.append(entry)


class RedrivesWhatWasAcked(Saboteur):
    def apply(self, queue: Queue, entry: Entry, action: Action) -> None:
        if isinstance(action, Ack) and entry.attempt == queue.spec.max_receive_count:
            self.dead_letter(queue, entry)
        else:
            super().apply(queue, entry, action)


class GivesDeadLettersANewId(Saboteur):
    def dead_letter(self, queue: Queue, entry: Entry) -> None:
        entry.message = replace(entry.message, id=new_id())
        super().dead_letter(queue, entry)


class StripsDeadLettersOfTheirHeaders(Saboteur):
    def dead_letter(self, queue: Queue, entry: Entry) -> None:
        message = entry.message
        entry.message = Message(body=message.body, id=message.id, type=message.type)
        super().dead_letter(queue, entry)


class HandsOutForEverThoughItSaysItCounts(Saboteur):
    """What is abandoned costs no attempt, and nothing says so."""

    poses_as = attrs.evolve(EVERYTHING, has_uncounted_abandon=False)


class MakesQueuesWithoutTheirTarget(Saboteur):
    def create(self, spec: QueueSpec) -> None:
        self.stock.setdefault(spec.name, Queue(spec))


class IgnoresRedriveWhenValidating(Saboteur):
    def difference(self, queue: Queue, spec: QueueSpec) -> str:
        return super().difference(
            queue,
            attrs.evolve(
                spec,
                max_receive_count=queue.spec.max_receive_count,
                dead_letter_queue=queue.spec.dead_letter_queue,
            ),
        )
