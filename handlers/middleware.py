"""The middleware that needs no store: `Retry`, `Timeout`, `Fallback`, `Validate`, `LogHandling`."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final

import attrs

from pump.backoff import Backoff
from pump.context import Context
from pump.decide import describe
from pump.errors import ConfigurationError, HandlerTimeout, text_of
from pump.observability import vocabulary
from pump.observability.log import get_logger
from pump.outcome import InvalidMessage, carries_signal
from pump.pipeline import HandlerFactory, Proceed, call_constructor, compose, invoker

from .base import FailureTypes, OneOrMore, failure_types, is_failure, positive

_log = get_logger("pump.handlers")
QUICK = Backoff(initial=timedelta(milliseconds=200), maximum=timedelta(seconds=10))
"""For waiting while a message is in flight."""


def _retry_on(given: OneOrMore) -> FailureTypes:
    return failure_types("Retry.on", given)


@attrs.frozen
class Retry:
    """Runs the rest up to `max_attempts` times while it fails with one of `on`.

    For what passes in seconds: the message stays in flight and its lease is renewed meanwhile.
    Waits between attempts follow `backoff`; the last error gets out. A signal, a cancellation
    and a lost lease end it at once; `HandlerTimeout` is an error like any other.
    """

    max_attempts: int = 3
    backoff: Backoff = attrs.field(default=QUICK, kw_only=True)
    on: FailureTypes = attrs.field(default=(Exception,), kw_only=True, converter=_retry_on)

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


FALLBACK_ERROR: Final = "fallback.error"
"""Where `Context.bag` holds the error that led to the alternative."""


def _handler(given: Any) -> Any:
    if not callable(given) and not callable(getattr(given, "handle", None)):
        raise ConfigurationError(
            "Fallback.handler", given, "give a function, or a class or object with handle(request)"
        )
    return given


def _fallback_on(given: OneOrMore) -> FailureTypes:
    return failure_types("Fallback.on", given)


@attrs.frozen
class Fallback:
    """Hands the request to `handler` when the rest fails with one of `on`.

    The alternative may be a function, an object or a class (built by `factory`), async or
    blocking, with middleware of its own. Its result is the result; its errors and signals get
    out. It never runs for a signal, a cancellation or a lost lease.
    """

    handler: Any = attrs.field(converter=_handler)
    on: FailureTypes = attrs.field(default=(Exception,), kw_only=True, converter=_fallback_on)
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


Verdict = bool | str | None
Check = Callable[[Any], Verdict | Awaitable[Verdict]]
"""Returns None, True or "" for a good request; False, or text that says what is wrong with it."""


def attrs_validators(request: Any) -> None:
    """Run the validators of an attrs class again, for what was changed since construction."""
    if not attrs.has(type(request)):
        raise ConfigurationError(
            "Validate.check",
            type(request).__qualname__,
            "not an attrs class, so it has no validators to run; give a check of your own",
        )
    attrs.validate(request)


def _check(given: Check) -> Check:
    if not callable(given):
        raise ConfigurationError("Validate.check", given, "give a function of the request")
    return given


def _validate_on(given: OneOrMore) -> FailureTypes:
    return failure_types("Validate.on", given)


@attrs.frozen
class Validate:
    """Raises `InvalidMessage`, with the detail, for a request that `check` finds wanting.

    `check` runs on the event loop, so a blocking one must be quick; it may be async. A check
    that raises one of `on` finds the request wanting too; any other error (a database that is
    away) is the check's own failure and is retried like a handler's. Without a check, the
    validators of an attrs request are run again.
    """

    check: Check = attrs.field(default=attrs_validators, converter=_check)
    on: FailureTypes = attrs.field(
        default=(ValueError, TypeError), kw_only=True, converter=_validate_on
    )

    async def __call__(self, request: Any, context: Context, proceed: Proceed) -> Any:
        detail = await self._what_is_wrong(request)
        if detail:
            raise InvalidMessage(detail)
        return await proceed(request)

    async def _what_is_wrong(self, request: Any) -> str:
        try:
            verdict = self.check(request)
            if inspect.isawaitable(verdict):
                verdict = await verdict
        except self.on as error:
            return f"{type(error).__name__}: {text_of(error)}"
        if verdict is False:
            return f"{type(request).__qualname__} did not pass {_name(self.check)}"
        if verdict is None or verdict is True:
            return ""
        if isinstance(verdict, str):
            return verdict
        raise ConfigurationError(
            "Validate.check", type(verdict), "return None, True, False, or what is wrong as text"
        )


def _name(check: Check) -> str:
    return str(getattr(check, "__name__", type(check).__name__))


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
