"""`Fallback`: runs an alternative when the handler fails."""

from __future__ import annotations

from typing import Any, Final

import attrs

from pump.context import Context
from pump.errors import ConfigurationError
from pump.observability import vocabulary
from pump.observability.log import get_logger
from pump.pipeline import HandlerFactory, Proceed, call_constructor, compose, invoker

from .base import FailureTypes, OneOrMore, failure_types, is_failure

_log = get_logger("pump.handlers")
FALLBACK_ERROR: Final = "fallback.error"
"""Where `Context.bag` holds the error that led to the alternative."""


def _handler(given: Any) -> Any:
    if not callable(given) and not callable(getattr(given, "handle", None)):
        raise ConfigurationError(
            "Fallback.handler", given, "give a function, or a class or object with handle(request)"
        )
    return given


def _on(given: OneOrMore) -> FailureTypes:
    return failure_types("Fallback.on", given)


@attrs.frozen
class Fallback:
    """Hands the request to `handler` when the rest fails with one of `on`.

    The alternative may be a function, an object or a class (built by `factory`), async or
    blocking, with middleware of its own. Its result is the result; its errors and signals get
    out. It never runs for a signal, a cancellation or a lost lease.
    """

    handler: Any = attrs.field(converter=_handler)
    on: FailureTypes = attrs.field(default=(Exception,), kw_only=True, converter=_on)
    factory: HandlerFactory = attrs.field(default=call_constructor, kw_only=True)

    async def __call__(self, request: Any, context: Context, proceed: Proceed) -> Any:
        try:
            return await proceed(request)
        except self.on as error:
            if not is_failure(error, context):
                raise
            context.bag[FALLBACK_ERROR] = error
            _log.warning(
                vocabulary.FALLBACK_USED, handler=context.handler, error=type(error).__name__
            )
            return await self._instead(request, context)

    async def _instead(self, request: Any, context: Context) -> Any:
        step = invoker(self.handler, factory=self.factory, threads=None)
        return await compose(step, tuple(getattr(self.handler, "middleware", ())))(request, context)
