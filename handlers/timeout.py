"""`Timeout`: bounds how long a handler may take."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import attrs

from pump.context import Context
from pump.errors import HandlerTimeout
from pump.pipeline import Proceed

from .base import positive


def _limit(given: timedelta) -> timedelta:
    return positive("Timeout.limit", given)


@attrs.frozen
class Timeout:
    """Cancels the rest after `limit` and raises `HandlerTimeout`.

    A cancellation from outside stays one, and a TimeoutError of the handler's own stays its
    own. A handler that finishes its work in spite of being cancelled has succeeded. A blocking
    handler cannot be cancelled: it is left behind, still running in its thread, while the
    message is on its way to another attempt; give its blocking calls timeouts of their own.
    """

    limit: timedelta = attrs.field(converter=_limit)

    async def __call__(self, request: Any, context: Context, proceed: Proceed) -> Any:
        limit_s = self.limit.total_seconds()
        own: TimeoutError | None = None
        try:
            async with context.clock.timeout(limit_s):
                try:
                    return await proceed(request)
                except TimeoutError as error:
                    own = error
                    raise
        except TimeoutError as error:
            if error is own:
                raise
            raise HandlerTimeout(context.handler, limit_s) from error
