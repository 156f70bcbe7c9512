"""The contract suite, put together from its parts."""

from __future__ import annotations

from .administration import AdministrationContract
from .blocking import BlockingContract, SessionBlockingContract
from .by_hand import ByHandContract, SessionByHandContract
from .claims import ClaimContract
from .concurrency import ConcurrencyContract
from .durability import DurabilityContract, LifecycleContract, SharingContract
from .hostile import HostileContract
from .laws import LawContract
from .leases import LeaseContract
from .ordering import GroupContract, OrderingContract
from .receiving import ReceivingContract
from .redrive import RedriveContract
from .rejecting import RejectionContract
from .resilience import ResilienceContract
from .sending import DeduplicationContract, SendingContract
from .session_locks import SessionLockContract
from .sessions import SessionContract
from .settling import SettlingContract


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
