"""The contract suite, put together from its parts."""

from __future__ import annotations

from .by_hand import ByHandContract, SessionByHandContract
from .claims import AdministrationContract, ClaimContract
from .concurrency import BlockingContract, ConcurrencyContract, SessionBlockingContract
from .durability import DurabilityContract, LifecycleContract, ResilienceContract, SharingContract
from .hostile import HostileContract
from .laws import LawContract
from .ordering import GroupContract, OrderingContract
from .rejecting import RedriveContract, RejectionContract
from .sending import DeduplicationContract, ReceivingContract, SendingContract
from .session_locks import SessionLockContract
from .sessions import SessionContract
from .settling import LeaseContract, SettlingContract


class PortContract(
    SendingContract,
    ReceivingContract,
    SettlingContract,
    LeaseContract,
    ConcurrencyContract,
    OrderingContract,
    GroupContract,
    SessionContract,
    SessionLockContract,
    DeduplicationContract,
    RedriveContract,
    AdministrationContract,
    DurabilityContract,
    LifecycleContract,
    ClaimContract,
    SharingContract,
    ResilienceContract,
    BlockingContract,
    SessionBlockingContract,
):
    """What a gateway's ports promise, without a pump on top."""


class PumpContract(
    LawContract, RejectionContract, HostileContract, ByHandContract, SessionByHandContract
):
    """What an app does on the gateway, with its pump and by hand: the laws, where messages end,
    and what handlers may do to it.
    """


class GatewayContract(PortContract, PumpContract):
    """Everything. Subclass it, and define a `rig` fixture."""
