"""`Validate`: turns away requests that are no good before the handler sees them."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import attrs

from pump.context import Context
from pump.errors import ConfigurationError, text_of
from pump.outcome import InvalidMessage
from pump.pipeline import Proceed

from .base import FailureTypes, OneOrMore, failure_types

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


def _on(given: OneOrMore) -> FailureTypes:
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
    on: FailureTypes = attrs.field(default=(ValueError, TypeError), kw_only=True, converter=_on)

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
