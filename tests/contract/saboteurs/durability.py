"""Saboteurs of durability: what they lose, they lose when the gateway is opened again."""

from __future__ import annotations

import itertools

from msgspec.structs import replace

from pump.outcome import Ack, Action
from pump.subscription import QueueSpec

from ..naive import Entry, Queue
from .base import Saboteur


class KeepsMessagesInMemoryOnly(Saboteur):
    def restart(self) -> None:
        for queue in self.stock.values():
            queue.entries.clear()


class KeepsAcksInMemoryOnly(Saboteur):
    def restart(self) -> None:
        for queue, entry in self.__dict__.get("acked", []):
            queue.entries.append(entry)
            entry.receipt = None

    def apply(self, queue: Queue, entry: Entry, action: Action) -> None:
        super().apply(queue, entry, action)
        if isinstance(action, Ack):
            self.__dict__.setdefault("acked", []).append((queue, entry))


class KeepsLeasesOfTheDeadForEver(Saboteur):
    def restart(self) -> None:
        for queue in self.stock.values():
            for entry in queue.entries:
                if entry.receipt is not None:
                    entry.visible_at_s = float("inf")


class StartsItsReceiptsAnew(Saboteur):
    generation = 0

    def restart(self) -> None:
        self.numbers = itertools.count(1_000)
        self.receipts = itertools.count(1)

    def token(self, entry: Entry) -> str:
        if not hasattr(self, "receipts"):
            self.receipts = itertools.count(1)
        return f"receipt-{next(self.receipts)}"


class ForgetsDelays(Saboteur):
    def restart(self) -> None:
        for queue in self.stock.values():
            for entry in queue.entries:
                if entry.receipt is None:
                    entry.visible_at_s = 0.0


class ForgetsAttempts(Saboteur):
    def restart(self) -> None:
        for queue in self.stock.values():
            for entry in queue.entries:
                entry.attempt = 0


class ForgetsDuplicates(Saboteur):
    def restart(self) -> None:
        for queue in self.stock.values():
            queue.seen_until_s.clear()


class RestoresWhatWasDeadLettered(Saboteur):
    def restart(self) -> None:
        for queue, entry in self.__dict__.get("dead_lettered", []):
            queue.entries.append(entry)

    def dead_letter(self, queue: Queue, entry: Entry) -> None:
        super().dead_letter(queue, entry)
        self.__dict__.setdefault("dead_lettered", []).append((queue, entry))


class RestoresWhatWasPurged(Saboteur):
    def restart(self) -> None:
        for queue, entries in self.__dict__.get("purged", []):
            queue.entries += entries

    def empty(self, queue: Queue) -> int:
        self.__dict__.setdefault("purged", []).append((queue, list(queue.entries)))
        return super().empty(queue)


class ForgetsSettings(Saboteur):
    def restart(self) -> None:
        for queue in self.stock.values():
            queue.spec = QueueSpec(name=queue.spec.name)


class ShufflesMessages(Saboteur):
    def restart(self) -> None:
        for queue in self.stock.values():
            for entry in queue.entries:
                entry.number = -entry.number


class LosesHeaders(Saboteur):
    def restart(self) -> None:
        for queue in self.stock.values():
            for entry in queue.entries:
                entry.message = replace(entry.message, headers={})
