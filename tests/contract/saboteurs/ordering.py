"""Saboteurs of order."""

from __future__ import annotations

from pump.capabilities import OrderingMode
from pump.subscription import QueueSpec

from ..naive import PLAIN, Entry, Queue
from .base import Saboteur


class DeliversTheNewestFirst(Saboteur):
    def candidates(self, queue: Queue) -> list[Entry]:
        return sorted(queue.entries, key=lambda entry: -entry.number)


class SwapsNeighbours(Saboteur):
    def candidates(self, queue: Queue) -> list[Entry]:
        return sorted(
            super().candidates(queue), key=lambda entry: (entry.number // 2, -entry.number)
        )


class IgnoresLifo(Saboteur):
    def candidates(self, queue: Queue) -> list[Entry]:
        return sorted(queue.entries, key=lambda entry: entry.number)


class PretendsToDoLifo(Saboteur):
    poses_as = PLAIN

    def check_supported(self, spec: QueueSpec) -> None:
        if spec.ordering is not OrderingMode.LIFO:
            super().check_supported(spec)


class PretendsToBeStrict(Saboteur):
    poses_as = PLAIN

    def check_supported(self, spec: QueueSpec) -> None:
        if not spec.ordering_guarantee:
            super().check_supported(spec)


class IgnoresTheGuarantee(Saboteur):
    def domain(self, queue: Queue, entry: Entry) -> object:
        return entry.message.group or entry


class LetsOthersPassADeferredHead(Saboteur):
    def is_blocked(self, queue: Queue, entry: Entry) -> bool:
        held = Queue(queue.spec, [e for e in queue.entries if e.receipt or e is entry])
        return super().is_blocked(held, entry)


class PutsWhatComesBackAtTheEnd(Saboteur):
    def give_back(self, queue: Queue, entry: Entry, delay_s: float) -> None:
        entry.number = next(self.numbers)
        super().give_back(queue, entry, delay_s)


class PutsWhatExpiredAtTheEnd(Saboteur):
    def sweep(self) -> None:
        for queue in self.stock.values():
            for entry in queue.entries:
                if entry.receipt is not None and entry.visible_at_s <= self.clock.now_s():
                    entry.number = next(self.numbers)
        super().sweep()


class KeepsADeadHeadInTheWay(Saboteur):
    def dead_letter(self, queue: Queue, entry: Entry) -> None:
        super().dead_letter(queue, entry)
        if queue.spec.ordering_guarantee:
            entry.visible_at_s = float("inf")
            queue.entries.append(entry)


class IgnoresGroups(Saboteur):
    def domain(self, queue: Queue, entry: Entry) -> object:
        return "all" if queue.spec.ordering_guarantee else entry


class ReversesAGroup(Saboteur):
    def is_blocked(self, queue: Queue, entry: Entry) -> bool:
        group = entry.message.group
        if group is None:
            return super().is_blocked(queue, entry)
        return any(e.message.group == group and e.number > entry.number for e in queue.entries)


class ServesOneGroupAtATime(Saboteur):
    def domain(self, queue: Queue, entry: Entry) -> object:
        return "grouped" if entry.message.group else super().domain(queue, entry)


class LetsUngroupedMessagesWaitForGroups(Saboteur):
    def is_blocked(self, queue: Queue, entry: Entry) -> bool:
        is_behind = entry.message.group is None and any(e.message.group for e in queue.entries)
        return is_behind or super().is_blocked(queue, entry)


class MakesOneDomainOfAStrictQueue(Saboteur):
    def domain(self, queue: Queue, entry: Entry) -> object:
        return "all" if queue.spec.ordering_guarantee else super().domain(queue, entry)
