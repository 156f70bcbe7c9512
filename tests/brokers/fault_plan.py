"""Which request meets which fault: decided from the request's operation and its number alone.

Nothing here is random at run time. A plan made from a seed gives the third `SendMessageBatch`
the same fate in every run, however requests of other operations fall between.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from random import Random

import attrs


class FaultKind(StrEnum):
    """What goes wrong with a request."""

    DROP_BEFORE = "drop before"  # the connection is reset; the server never sees the request
    DELAY = "delay"  # the server sees the request late
    SERVER_ERROR = "server error"  # a 5xx answer; the server never sees the request
    THROTTLE = "throttle"  # the service's own throttling error; the same
    TRUNCATE = "truncate"  # the server did it; half of its answer arrives
    LOSE_RESPONSE = "lose response"  # the server did it; nothing of its answer arrives


@attrs.frozen
class Fault:
    """One thing that goes wrong."""

    kind: FaultKind
    seconds: float = 0.0
    status: int = 500


def delay(seconds: float) -> Fault:
    """The request reaches the server `seconds` later."""
    return Fault(FaultKind.DELAY, seconds=seconds)


DROP_BEFORE = Fault(FaultKind.DROP_BEFORE)
SERVER_ERROR = Fault(FaultKind.SERVER_ERROR, status=500)
UNAVAILABLE = Fault(FaultKind.SERVER_ERROR, status=503)
THROTTLE = Fault(FaultKind.THROTTLE)
TRUNCATE = Fault(FaultKind.TRUNCATE)
LOSE_RESPONSE = Fault(FaultKind.LOSE_RESPONSE)

ALL_FAULTS = (
    DROP_BEFORE,
    delay(0.05),
    SERVER_ERROR,
    UNAVAILABLE,
    THROTTLE,
    TRUNCATE,
    LOSE_RESPONSE,
)


@attrs.frozen
class FaultPlan:
    """A request's fault, by its operation and how many of that operation came before it."""

    fault_for: Callable[[str, int], Fault | None]

    @classmethod
    def random(
        cls,
        seed: int,
        *,
        rate: float = 0.05,
        kinds: Sequence[Fault] = ALL_FAULTS,
        operations: Collection[str] | None = None,
    ) -> FaultPlan:
        """One request in 1/`rate` meets one of `kinds`; only of `operations` where given."""

        def fault_for(operation: str, number: int) -> Fault | None:
            if operations is not None and operation not in operations:
                return None
            chance = Random(f"{seed} {operation} {number}")
            return chance.choice(kinds) if chance.random() < rate else None

        return cls(fault_for)

    @classmethod
    def script(cls, faults: Mapping[str, Sequence[Fault | None]]) -> FaultPlan:
        """Each operation's requests meet its list in order, and nothing after its end."""

        def fault_for(operation: str, number: int) -> Fault | None:
            script = faults.get(operation, ())
            return script[number] if number < len(script) else None

        return cls(fault_for)

    @classmethod
    def every(cls, fault: Fault) -> FaultPlan:
        """Every request meets the same fault, such as a delay."""
        return cls(lambda operation, number: fault)


NO_FAULTS = FaultPlan(lambda operation, number: None)
