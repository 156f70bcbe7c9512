"""What all parts of the contract suite have in common."""

from __future__ import annotations

import pytest


class ContractTests:
    """A part of the suite. Its user defines a `rig` fixture that yields a `Rig`."""

    pytestmark = pytest.mark.asyncio
