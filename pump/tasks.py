"""Tasks: work beside the event loop, whatever a handler has done to the loop."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


async def in_thread(work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """As `asyncio.to_thread`, also when a handler has closed the loop's own pool of threads."""
    loop = asyncio.get_running_loop()
    call: Callable[[], _T] = partial(contextvars.copy_context().run, work, *args, **kwargs)
    try:
        ended = loop.run_in_executor(None, call)
    except RuntimeError:
        ended = loop.run_in_executor(_spare_threads(), call)
    return await ended


@cache
def _spare_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(4, thread_name_prefix="pump-spare")
