"""Which transport the settings choose; the only module that knows all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pump.clock import SYSTEM_CLOCK, Clock

from .lean.transport import Lean
from .sdk import Aioboto3, Boto3
from .sdk_transport import Sdk, SdkTransport
from .settings import AwsSettings, TransportKind
from .transport import Transport

_KINDS: Final[Mapping[TransportKind, Callable[[AwsSettings], Sdk]]] = {
    TransportKind.BOTO3: Boto3,
    TransportKind.AIOBOTO3: Aioboto3,
    TransportKind.LEAN: Lean,
}


def transport_for(settings: AwsSettings, clock: Clock = SYSTEM_CLOCK) -> Transport:
    """Make the transport that the settings choose. No SDK is imported, and nothing opened yet."""
    return SdkTransport(_KINDS[settings.transport](settings), settings, clock)
