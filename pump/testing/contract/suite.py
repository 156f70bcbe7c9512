"""The contract suite, put together from its parts."""

from __future__ import annotations

from .administration import AdministrationContract
from .concurrency import ConcurrencyContract
from .deduplication import DeduplicationContract
from .durability import DurabilityContract
from .groups import GroupContract
from .laws import LawContract
from .leases import LeaseContract
from .lifecycle import LifecycleContract
from .ordering import OrderingContract
from .receiving import ReceivingContract
from .redrive import RedriveContract
from .rejecting import RejectionContract
from .sending import SendingContract
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
):
    """What a gateway's ports promise, without a pump on top."""


class PumpContract(LawContract, RejectionContract):
    """What an app with its pump does on the gateway: the laws, and where messages end."""


class GatewayContract(PortContract, PumpContract):
    """Everything. Subclass it, and define a `rig` fixture."""
