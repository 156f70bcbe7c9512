"""Closing: a file that is still being written must not become another process's."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def to_the_end(closing: Coroutine[Any, Any, None]) -> None:
    """Run it to its end. A cancellation meanwhile goes on afterwards."""
    task = asyncio.create_task(closing, name="pumphouse-closing")
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
