"""Random logs: entries as a few processes might have written them, with some they should not."""

from __future__ import annotations

from random import Random

from gateways._engine.record import EngineSettings
from gateways.s3.log.entries import (
    UNCOUNTED,
    Adopt,
    CommitEntry,
    Configure,
    DeadLettered,
    ExtendOperation,
    Lot,
    Op,
    PurgeOperation,
    SendOperation,
    SettleOperation,
    Sweep,
    Take,
    hold,
)
from gateways.s3.log.state import Applied, Replica, Takings, configure

WRITERS = ("ann", "bob", "cy")


class RandomLog:
    """Makes up the next entry from what came of the ones before."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(seed)
        self._receipts: list[str] = []
        self._segments = 0
        self._counts = dict.fromkeys(WRITERS, 0)
        self.settings = EngineSettings(
            name="q",
            is_lifo=self._chance.random() < 0.3,
            is_strict=self._chance.random() < 0.3,
            max_receive_count=self._chance.choice([None, 2]),
            dead_letter_queue="dead",
            deduplication_window_s=self._chance.choice([0.0, 6.0]),
        )

    def next(self, replica: Replica) -> CommitEntry:
        """An entry that follows what the replica has applied."""
        chance = self._chance
        writer = chance.choice(WRITERS)
        self._counts[writer] += 1
        ops = [self._op(replica) for _ in range(chance.randrange(4))]
        # Clocks of writers differ, also so much that time would go back.
        at_s = replica.at_s + chance.choice([-1.0, 0.0, 0.3, 1.0, 4.0])
        if replica.number == 0:
            ops.insert(0, configure(self.settings))
        return CommitEntry(
            replica.number + 1,
            writer,
            self._counts[writer],
            at_s,
            chance.choice([0.0, 0.5, 1.25]),
            tuple(ops),
        )

    def learn(self, applied: Applied) -> None:
        """Remember what was handed out."""
        for result in applied.results:
            if isinstance(result, Takings):
                self._receipts += [each.receipt for each in result.taken]

    def _op(self, replica: Replica) -> Op:
        chance = self._chance
        make = chance.choices(
            [self._send, self._take, self._settle, self._extend, self._rare],
            weights=[5, 6, 5, 2, 1],
        )[0]
        return make(replica)

    def _send(self, replica: Replica) -> Op:
        self._segments += 1
        return SendOperation(f"s{self._segments}", 0.0, tuple(self._lot() for _ in range(2)))

    def _lot(self) -> Lot:
        chance, count = self._chance, self._chance.randrange(1, 4)
        groups = tuple(chance.choice([None, "g", "h"]) for _ in range(count))
        keys = tuple(chance.choice([None, None, "k", "l", "m"]) for _ in range(count))
        delay_s = chance.choice([0.0, 0.0, 2.0])
        return Lot(count, delay_s, chance.choice([(), groups]), chance.choice([(), keys]))

    def _take(self, replica: Replica) -> Op:
        return Take(self._chance.randrange(1, 5), self._chance.choice([1.0, 3.0, 8.0]))

    def _some(self) -> list[str]:
        count = min(len(self._receipts), self._chance.randrange(1, 6))
        return self._chance.sample([*self._receipts[-12:], "void.7"], min(count, 12))

    def _settle(self, replica: Replica) -> Op:
        receipts = self._some()
        delays_s = tuple(self._chance.choice([None, UNCOUNTED, 0.0, 2.0]) for _ in receipts)
        return SettleOperation(hold(receipts), self._chance.choice([(), delays_s]))

    def _extend(self, replica: Replica) -> Op:
        return ExtendOperation(hold(self._some()), self._chance.choice([1.0, 5.0]))

    def _rare(self, replica: Replica) -> Op:
        chance = self._chance
        choices: list[Op] = [
            Adopt(),
            DeadLettered(tuple(replica.dead)),
            DeadLettered((1, 2, 3)),
            Sweep(chance.choice([0.0, -1.0])),
            *([PurgeOperation()] if chance.random() < 0.2 else []),
            *([self._reconfigured()] if chance.random() < 0.5 else []),
        ]
        return chance.choice(choices)

    def _reconfigured(self) -> Configure:
        chance = self._chance
        return Configure(
            chance.random() < 0.5,
            chance.random() < 0.5,
            chance.choice([None, 1, 3]),
            "dead",
            chance.choice([0.0, 6.0]),
        )
