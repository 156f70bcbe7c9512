"""`Retry`: tries again in place, without giving the message back."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import attrs

from pump.backoff import Backoff
from pump.context import Context
from pump.errors import ConfigurationError
from pump.observability import vocabulary
from pump.observability.log import get_logger
from pump.pipeline import Proceed

from .base import FailureTypes, OneOrMore, failure_types, is_failure

_log = get_logger("pump.handlers")
QUICK = Backoff(initial=timedelta(milliseconds=200), maximum=timedelta(seconds=10))
"""For waiting with a message in hand."""


def _on(given: OneOrMore) -> FailureTypes:
    return failure_types("Retry.on", given)


@attrs.frozen
class Retry:
    """Runs the rest up to `max_attempts` times while it fails with one of `on`.

    For what passes in seconds: the message stays in hand and its lease is renewed meanwhile.
    Waits between attempts follow `backoff`; the last error gets out. A signal, a cancellation
    and a lost lease end it at once; `HandlerTimeout` is an error like any other.
    """

    max_attempts: int = 3
    backoff: Backoff = attrs.field(default=QUICK, kw_only=True)
    on: FailureTypes = attrs.field(default=(Exception,), kw_only=True, converter=_on)

    def __attrs_post_init__(self) -> None:
        given: object = self.max_attempts
        if not isinstance(given, int) or isinstance(given, bool) or given < 1:
            raise ConfigurationError(
                "Retry.max_attempts", given, "use 1 or more; the first try counts"
            )
        if not isinstance(self.backoff, Backoff):
            raise ConfigurationError("Retry.backoff", self.backoff, "use Backoff(…)")

    async def __call__(self, request: Any, context: Context, proceed: Proceed) -> Any:
        for attempt in itertools.count(1):
            try:
                return await proceed(request)
            except self.on as error:
                if attempt >= self.max_attempts or not is_failure(error, context):
                    raise
                kind = type(error).__name__
            delay_s = self.backoff.delay_s(attempt, context.clock.chance())
            _log.debug(
                vocabulary.HANDLER_RETRIED,
                handler=context.handler,
                error=kind,
                tries=attempt,
                delay_s=delay_s,
            )
            await context.clock.sleep(delay_s)
