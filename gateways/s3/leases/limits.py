"""Limits of this layout."""

from __future__ import annotations

from typing import Final

MAX_BATCH_COUNT: Final = 100
MAX_BATCH_BYTES: Final = 1_048_576
"""Of more than one message, packed; a single one may be larger with its headers."""
