"""`LogHandling`: one line for each handling, without a word of what was in the message."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import attrs

from pump.context import Context
from pump.decide import describe
from pump.observability import vocabulary
from pump.observability.log import get_logger
from pump.outcome import carries_signal
from pump.pipeline import Proceed

_log = get_logger("pump.handlers")
# Asked first, because putting a line together costs more than all the rest.
_hears = logging.getLogger("pump.handlers").isEnabledFor


@attrs.frozen
class LogHandling:
    """Logs how each handling ended, and how long it took.

    `handler.completed` and `handler.signalled` at info, `handler.failed` and
    `handler.cancelled` at warning, `handler.started` at debug. Errors are named by their type;
    their text often quotes the message, so it and the traceback are logged with `details=True`
    only (R61). The level is that of the stdlib logger `pump.handlers`.
    """

    details: bool = False

    async def __call__(self, request: Any, context: Context, proceed: Proceed) -> Any:
        if _hears(logging.DEBUG):
            _log.debug(vocabulary.HANDLER_STARTED, handler=context.handler, attempt=context.attempt)
        started_s = context.clock.now_s()
        try:
            result = await proceed(request)
        except asyncio.CancelledError:
            _log.warning(vocabulary.HANDLER_CANCELLED, **_facts(context, started_s))
            raise
        except BaseException as error:  # broad: named and raised again
            self._log_error(error, _facts(context, started_s))
            raise
        if context.signal is not None:
            # A middleware further in swallowed it; the pipeline will raise it again.
            self._log_error(context.signal, _facts(context, started_s))
        elif _hears(logging.INFO):
            _log.info(vocabulary.HANDLER_COMPLETED, **_facts(context, started_s))
        return result

    def _log_error(self, error: BaseException, facts: dict[str, Any]) -> None:
        if carries_signal(error):
            _log.info(vocabulary.HANDLER_SIGNALLED, signal=type(error).__name__, **facts)
        elif self.details:
            _log.warning(vocabulary.HANDLER_FAILED, error=describe(error), exc_info=error, **facts)
        else:
            _log.warning(vocabulary.HANDLER_FAILED, error=type(error).__name__, **facts)


def _facts(context: Context, started_s: float) -> dict[str, Any]:
    return {
        "handler": context.handler,
        "attempt": context.attempt,
        "run_s": round(context.clock.now_s() - started_s, 6),
    }
