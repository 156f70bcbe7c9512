"""Pipeline: middleware in order, and a signal that always gets out (law 8)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from pump import DeferMessage, InvalidMessage, RejectMessage
from pump.context import Context
from pump.outcome import carries_signal
from pump.pipeline import Invoke, Middleware, Proceed, compose

SIGNALS = [
    DeferMessage(),
    RejectMessage("no"),
    InvalidMessage("what?"),
    ExceptionGroup("group", [ValueError(), ExceptionGroup("inner", [RejectMessage("no")])]),
]


def raising(error: Exception) -> Invoke:
    async def handler(request: Any, context: Context) -> Any:
        raise error

    return handler


class Swallow:
    """Hides every error."""

    async def __call__(self, request: Any, context: Context, proceed: Proceed) -> Any:
        try:
            return await proceed(request)
        except Exception:
            return "all is well"


class Replace:
    """Answers every error with its own."""

    async def __call__(self, request: Any, context: Context, proceed: Proceed) -> Any:
        try:
            return await proceed(request)
        except Exception:
            raise RuntimeError("something went wrong") from None


class PassOn:
    """Does nothing."""

    async def __call__(self, request: Any, context: Context, proceed: Proceed) -> Any:
        return await proceed(request)


class Noting:
    """Notes when it is entered and left."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self.name = name
        self.notes = notes

    async def __call__(self, request: Any, context: Context, proceed: Proceed) -> Any:
        self.notes.append(f"into {self.name}")
        result = await proceed(f"{request}{self.name}")
        self.notes.append(f"out of {self.name}")
        return f"{self.name}{result}"


def a_context() -> Context:
    return Context(handler="test")


async def test_when_there_are_several_middleware_then_the_first_is_outermost() -> None:
    notes: list[str] = []

    async def handler(request: Any, context: Context) -> Any:
        notes.append(f"handle {request}")
        return "!"

    chain = compose(handler, [Noting("a", notes), Noting("b", notes), Noting("c", notes)])

    assert await chain("x", a_context()) == "abc!"
    assert notes == [
        "into a",
        "into b",
        "into c",
        "handle xabc",
        "out of c",
        "out of b",
        "out of a",
    ]


def test_when_there_is_no_middleware_then_the_handler_is_called_directly() -> None:
    handler = raising(ValueError())

    assert compose(handler, []) is handler


@pytest.mark.parametrize("signal", SIGNALS, ids=lambda signal: type(signal).__name__)
@given(layers=st.lists(st.sampled_from([Swallow(), Replace(), PassOn()]), min_size=1, max_size=5))
@settings(max_examples=30)
def test_when_a_handler_raises_a_signal_then_no_middleware_can_hold_it_back(
    signal: Exception, layers: list[Middleware]
) -> None:
    """Law 8."""

    async def scenario() -> None:
        with pytest.raises(type(signal)) as caught:
            await compose(raising(signal), layers)("request", a_context())
        assert caught.value is signal

    asyncio.run(scenario())


@pytest.mark.parametrize("layer", [Swallow(), Replace(), PassOn()])
async def test_when_a_middleware_raises_a_signal_then_outer_ones_cannot_hold_it_back(
    layer: Middleware,
) -> None:
    """Law 8."""

    async def validate(request: Any, context: Context, proceed: Proceed) -> Any:
        raise InvalidMessage("no id")

    with pytest.raises(InvalidMessage, match="no id"):
        await compose(raising(ValueError()), [layer, validate])("request", a_context())


async def test_when_an_outer_middleware_raises_another_signal_then_that_one_counts() -> None:
    """A middleware may turn one action into another: it takes no action away."""

    async def reject_instead(request: Any, context: Context, proceed: Proceed) -> Any:
        try:
            await proceed(request)
        except DeferMessage:
            raise RejectMessage("no more waiting") from None

    with pytest.raises(RejectMessage, match="no more waiting"):
        await compose(raising(DeferMessage()), [reject_instead])("request", a_context())


async def test_when_an_ordinary_error_is_swallowed_then_that_is_the_middlewares_right() -> None:
    chain = compose(raising(ValueError("boom")), [Swallow()])

    assert await chain("request", a_context()) == "all is well"


async def test_when_an_ordinary_error_is_replaced_then_the_replacement_is_raised() -> None:
    with pytest.raises(RuntimeError, match="something went wrong"):
        await compose(raising(ValueError("boom")), [Replace()])("request", a_context())


async def test_when_a_middleware_does_not_proceed_then_the_handler_does_not_run() -> None:
    async def skip(request: Any, context: Context, proceed: Proceed) -> Any:
        return "skipped"

    assert await compose(raising(ValueError()), [skip])("request", a_context()) == "skipped"


async def test_when_a_middleware_proceeds_twice_then_the_handler_runs_twice() -> None:
    runs: list[str] = []

    async def handler(request: Any, context: Context) -> Any:
        runs.append(request)
        return len(runs)

    async def twice(request: Any, context: Context, proceed: Proceed) -> Any:
        await proceed(request)
        return await proceed(f"{request} again")

    assert await compose(handler, [twice])("once", a_context()) == 2
    assert runs == ["once", "once again"]


@pytest.mark.parametrize(
    ("error", "carries"),
    [
        *((signal, True) for signal in SIGNALS),
        (ValueError(), False),
        (ExceptionGroup("g", [ValueError(), KeyError()]), False),
        (BaseExceptionGroup("g", [KeyboardInterrupt(), DeferMessage()]), True),
    ],
)
def test_when_an_error_carries_a_signal_then_it_is_found_at_any_depth(
    error: BaseException, carries: bool
) -> None:
    assert carries_signal(error) is carries
