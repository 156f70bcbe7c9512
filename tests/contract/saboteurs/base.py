"""What a saboteur is: the naive gateway with one law broken, and the tests that find out."""

from __future__ import annotations

from typing import ClassVar

from pump.capabilities import Capabilities

from ..naive import EVERYTHING, NaiveGateway
from ..naive_network import NaiveRemote


class Saboteur(NaiveGateway):
    """A gateway that breaks one law."""

    Remote: ClassVar[type[NaiveRemote]] = NaiveRemote
    poses_as: ClassVar[Capabilities] = EVERYTHING
    """What it says it can do."""
