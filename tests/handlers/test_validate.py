"""Validate."""

from __future__ import annotations

import pickle
from typing import Any

import attrs
import pytest

from handlers import Validate
from pump.context import Context
from pump.errors import ConfigurationError
from pump.outcome import InvalidMessage, RejectMessage
from pump.pipeline import Proceed
from pump.processor import Command

from .support import Pay, run


class Refund(Command):
    """A request with a validator of its own."""

    cents: int = attrs.field(validator=attrs.validators.gt(0))


async def accept(request: Any) -> str:
    return "handled"


@pytest.mark.parametrize("verdict", [None, True, ""])
async def test_a_request_that_is_found_good_is_handled(verdict: Any) -> None:
    assert await run(accept, [Validate(lambda _: verdict)]) == "handled"


@pytest.mark.parametrize(
    ("verdict", "detail"),
    [(False, "Pay did not pass <lambda>"), ("no order number", "no order number")],
)
async def test_a_request_that_is_found_wanting_is_invalid(verdict: Any, detail: str) -> None:
    """R35."""
    with pytest.raises(InvalidMessage) as caught:
        await run(accept, [Validate(lambda _: verdict)])

    assert caught.value.detail == detail


async def test_a_check_may_be_async() -> None:
    async def check(request: Pay) -> str:
        return f"order {request.order} is unknown"

    with pytest.raises(InvalidMessage, match="A1 is unknown"):
        await run(accept, [Validate(check)])


@pytest.mark.parametrize("error", [ValueError("bad sum"), TypeError("bad sum")])
async def test_a_check_that_raises_a_value_error_finds_the_request_wanting(
    error: Exception,
) -> None:
    def check(_: Any) -> None:
        raise error

    with pytest.raises(InvalidMessage, match="bad sum"):
        await run(accept, [Validate(check)])


async def test_a_check_that_breaks_down_is_a_failure_and_not_the_messages_fault() -> None:
    async def check(_: Any) -> None:
        raise ConnectionError("the database is away")

    with pytest.raises(ConnectionError):
        await run(accept, [Validate(check)])


async def test_a_check_may_raise_a_signal_of_its_own() -> None:
    """Law 8."""

    def check(_: Any) -> None:
        raise RejectMessage("fraud")

    with pytest.raises(RejectMessage, match="fraud"):
        await run(accept, [Validate(check)])


async def test_without_a_check_the_attrs_validators_are_run_again() -> None:
    async def halve(request: Refund, context: Context, proceed: Proceed) -> Any:
        broken = Refund(request.cents)
        object.__setattr__(broken, "cents", -1)
        return await proceed(broken)

    with pytest.raises(InvalidMessage, match="must be > 0"):
        await run(accept, [halve, Validate()], request=Refund(5))
    assert await run(accept, [Validate()], request=Refund(5)) == "handled"


async def test_without_a_check_a_class_that_is_not_attrs_is_a_mistake_and_not_invalid() -> None:
    with pytest.raises(ConfigurationError, match="give a check"):
        await run(accept, [Validate()], request={"order": "A1"})


async def test_a_verdict_that_means_nothing_is_a_mistake() -> None:
    with pytest.raises(ConfigurationError, match="return None, True, False"):
        await run(accept, [Validate(lambda _: ["errors"])])  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize("settings", [{"check": 5}, {"on": BaseException}])
def test_wrong_settings_are_refused(settings: dict[str, Any]) -> None:
    """R56."""
    with pytest.raises(ConfigurationError, match="Validate"):
        Validate(**settings)


def test_it_survives_pickling() -> None:
    assert pickle.loads(pickle.dumps(Validate())) == Validate()
