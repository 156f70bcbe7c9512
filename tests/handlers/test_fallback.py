"""Fallback."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import pytest
from structlog.testing import capture_logs

from handlers import FALLBACK_ERROR, Fallback, Handler, Retry, use
from pump.errors import ConfigurationError
from pump.outcome import DeferMessage

from .support import Pay, a_context, raising, run, swallow_everything


class PayLater(Handler[Pay]):
    """An alternative that knows why it runs."""

    async def handle(self, request: Pay) -> str:
        return f"{request.order} later, after {self.context.bag[FALLBACK_ERROR]!r}"


def pay_by_hand(request: Pay) -> str:
    return f"{request.order} in {threading.current_thread() is not threading.main_thread()}"


async def test_when_the_handler_fails_then_the_alternative_is_the_result() -> None:
    assert await run(raising(ValueError("x")), [Fallback(PayLater)]) == (
        "A1 later, after ValueError('x')"
    )


async def test_a_blocking_alternative_runs_in_a_thread() -> None:
    assert await run(raising(ValueError("x")), [Fallback(pay_by_hand)]) == "A1 in True"


async def test_the_alternative_brings_its_own_middleware() -> None:
    seen = []

    async def note(request: Any, context: Any, proceed: Any) -> Any:
        seen.append(context.handler)
        return await proceed(request)

    @use(note)
    class Noted(PayLater):
        pass

    await run(raising(ValueError("x")), [Fallback(Noted)])

    assert seen == ["shop.Pay"]


async def test_the_alternative_is_built_by_the_factory_it_was_given() -> None:
    class Needy:
        def __init__(self, word: str) -> None:
            self.word = word

        async def handle(self, _: Any) -> str:
            return self.word

    fallback = Fallback(Needy, factory=lambda kind: kind("injected"))

    assert await run(raising(ValueError("x")), [fallback]) == "injected"


async def test_a_handler_that_succeeds_needs_no_alternative() -> None:
    async def handle(_: Any) -> str:
        return "paid"

    assert await run(handle, [Fallback(raising(AssertionError()))]) == "paid"


async def test_an_error_that_is_not_named_gets_out() -> None:
    with pytest.raises(KeyError):
        await run(raising(KeyError("x")), [Fallback(PayLater, on=(OSError,))])


async def test_when_the_alternative_fails_too_then_its_error_gets_out_with_the_first() -> None:
    first = ValueError("first")

    with pytest.raises(KeyError) as caught:
        await run(raising(first), [Fallback(raising(KeyError("second")))])

    assert caught.value.__context__ is first


async def test_law_8_a_signal_of_the_alternative_gets_out() -> None:
    with pytest.raises(DeferMessage):
        await run(raising(ValueError("x")), [swallow_everything, Fallback(raising(DeferMessage()))])


async def test_inside_a_retry_the_alternative_ends_the_tries() -> None:
    calls = 0

    async def handle(_: Any) -> None:
        nonlocal calls
        calls += 1
        raise ValueError

    await run(handle, [Retry(5), Fallback(PayLater)])

    assert calls == 1


async def test_it_says_so_without_the_errors_text() -> None:
    """R61."""
    with capture_logs() as lines:
        await run(raising(ValueError("card 4711")), [Fallback(PayLater)], context=a_context())

    [line] = lines
    assert (line["event"], line["error"]) == ("fallback.used", "ValueError")
    assert "4711" not in str(line)


@pytest.mark.parametrize("settings", [{"handler": 5}, {"handler": PayLater, "on": DeferMessage}])
def test_wrong_settings_are_refused(settings: dict[str, Any]) -> None:
    """R56."""
    with pytest.raises(ConfigurationError, match="Fallback"):
        Fallback(**settings)


def test_it_survives_pickling() -> None:
    fallback = Fallback(PayLater, on=(OSError,))

    assert pickle.loads(pickle.dumps(fallback)) == fallback
