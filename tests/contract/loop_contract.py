"""What of the contract can differ by the event loop, for gateways that run all of it on asyncio's.

Tests of lost connections run on both loops wherever there is a real server: see `conftest.py`.
"""

from __future__ import annotations

from pump.testing.contract.concurrency import (
    BlockingContract,
    ConcurrencyContract,
    SessionBlockingContract,
)
from pump.testing.contract.durability import DurabilityContract, LifecycleContract
from pump.testing.contract.hostile import HostileContract
from pump.testing.contract.laws import LawContract
from pump.testing.contract.sending import ReceivingContract


class LoopContract(
    ReceivingContract,
    ConcurrencyContract,
    DurabilityContract,
    LifecycleContract,
    BlockingContract,
    SessionBlockingContract,
    LawContract,
    HostileContract,
):
    """Waiting and its cancellation, many at once, closing and opening again, what blocks the loop,
    and the pump with handlers of every kind.
    """
