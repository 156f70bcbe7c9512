"""Handler, @use and the order of middleware."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from hypothesis import given, strategies as st

from handlers import Handler, NoContext, Retry, use
from pump.context import Context, current_context
from pump.errors import ConfigurationError
from pump.pipeline import Middleware, Proceed
from pump.processor import (
    Command,
    CommandProcessor,
    Event,
    HandlerRegistry,
    Handling,
    request_type_of,
)

from .support import Pay, a_context, run


class Note(Middleware):
    """Writes down when it is entered and left."""

    def __init__(self, name: str, seen: list[str] | None = None) -> None:
        self.name = name
        self.seen = [] if seen is None else seen

    async def __call__(self, request: Any, context: Context, proceed: Proceed) -> Any:
        self.seen.append(f"{self.name} in")
        try:
            return await proceed(request)
        finally:
            self.seen.append(f"{self.name} out")


class PayAsync(Handler[Pay]):
    """mypy --strict accepts an async override …"""

    async def handle(self, request: Pay) -> str:
        return f"{request.order} {self.context.handler}"


class PayBlocking(Handler[Pay]):
    """… and a blocking one."""

    def handle(self, request: Pay) -> str:
        is_in_thread = threading.current_thread() is not threading.main_thread()
        return f"{request.order} {self.context.handler} {is_in_thread}"


async def test_an_async_handler_runs_and_knows_its_context() -> None:
    assert await run(PayAsync, context=a_context(handler="shop.Pay")) == "A1 shop.Pay"


async def test_a_blocking_handler_runs_in_a_thread_and_knows_its_context() -> None:
    assert await run(PayBlocking, context=a_context(handler="shop.Pay")) == "A1 shop.Pay True"


@pytest.mark.parametrize("handler", [PayAsync, PayBlocking])
def test_the_request_type_is_read_off_the_subscript(handler: type) -> None:
    assert request_type_of(handler) is Pay


def test_outside_of_a_handling_the_context_says_what_is_wrong() -> None:
    with pytest.raises(NoContext, match=r"read it in handle\(\)"):
        _ = PayAsync().context


def test_a_handler_without_handle_cannot_be_made() -> None:
    class Nothing(Handler[Pay]):
        pass

    with pytest.raises(TypeError, match="handle"):
        Nothing()  # type: ignore[abstract]


async def test_each_request_gets_a_handler_of_its_own() -> None:
    class Counting(Handler[Pay]):
        calls = 0

        async def handle(self, request: Pay) -> int:
            self.calls += 1
            return self.calls

    assert [await run(Counting), await run(Counting)] == [1, 1]


class Outer(Command):
    """Sends Pay while it is handled."""


@pytest.mark.parametrize("inner", [PayAsync, PayBlocking])
async def test_a_handler_that_sends_a_request_finds_its_own_context_afterwards(
    inner: type,
) -> None:
    registry = HandlerRegistry()
    processor = CommandProcessor(registry)

    class HandleOuter(Handler[Outer]):
        async def handle(self, request: Outer) -> tuple[Context, Context]:
            before = self.context
            await processor.send(Pay())
            return before, self.context

    registry.register(Outer, HandleOuter)
    registry.register(Pay, inner)

    before, after = await processor.send(Outer())

    assert before is after
    assert current_context() is None


async def test_the_first_middleware_listed_is_the_outermost() -> None:
    seen: list[str] = []

    @use(Note("a", seen), Note("b", seen))
    async def handle(_: Pay) -> None:
        seen.append("handled")

    await run(handle)

    assert seen == ["a in", "b in", "handled", "b out", "a out"]


@given(st.lists(st.integers(), unique=True), st.integers(0, 9))
def test_splitting_a_list_over_two_decorators_changes_nothing(names: list[int], cut: int) -> None:
    notes = [Note(str(name)) for name in names]

    @use(*notes[:cut])
    @use(*notes[cut:])
    def handle(_: Any) -> None: ...

    assert list(handle.middleware) == notes  # type: ignore[attr-defined]


def test_use_adds_outside_of_what_is_inherited_and_leaves_the_base_alone() -> None:
    first, second, third = Note("1"), Note("2"), Note("3")

    @use(first)
    class Base(PayAsync):
        pass

    @use(second)
    class Derived(Base):
        pass

    @use(third)
    class Replacing(Base):
        middleware: ClassVar[Sequence[Middleware]] = (second,)

    assert Base.middleware == (first,)
    assert Derived.middleware == (second, first)
    assert Replacing.middleware == (third, second)
    assert PayAsync.middleware == ()


async def test_the_apps_middleware_is_outside_of_the_handlers() -> None:
    seen: list[str] = []
    registry = HandlerRegistry()

    @use(Note("own", seen))
    class Noted(PayAsync):
        pass

    registry.register(Pay, Noted, middleware=[Note("given", seen)])
    processor = CommandProcessor(registry, middleware=[Note("app", seen)])

    await processor.send(Pay())

    assert seen[:3] == ["app in", "given in", "own in"]


async def one_parameter(request: Any) -> None: ...


@pytest.mark.parametrize("wrong", [Retry, 5, one_parameter])
def test_what_is_no_middleware_is_refused(wrong: Any) -> None:
    """R56: also `@use` without its brackets."""
    with pytest.raises(ConfigurationError, match="use="):
        use(wrong)


def test_a_bound_method_cannot_be_decorated() -> None:
    with pytest.raises(ConfigurationError, match="takes no attributes"):
        use(Retry())(PayAsync().handle)


class Paid(Event):
    """Has several handlers."""


def test_two_handlers_of_one_event_never_share_a_name() -> None:
    """A once-only inbox would take the work of one for the work of the other."""
    registry = HandlerRegistry()
    handlers: list[Handling] = [PayAsync(), PayAsync(), PayAsync]

    names = [registry.register(Paid, each).name for each in handlers]

    assert len(set(names)) == 3
    assert names[0].endswith("test_handler.PayAsync")
