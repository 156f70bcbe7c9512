"""Contract: a handler may end in any way there is (R93).

Each way is tried beside well-behaved handlers, in one pump with few workers: a way that costs
a worker, breaks the pump or leaves its message in flight shows by its name. What would end the
program (`SystemExit`, `KeyboardInterrupt`, a signal) is tried on whole processes instead.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import os
import threading
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, NoReturn

from ...backoff import Backoff
from ...clock import SYSTEM_CLOCK, yield_to_loop
from ...events import Status
from ...outcome import DeferMessage, InvalidMessage, RejectMessage
from ...subscription import hybrid
from .rig import ContractTests, Rig
from .workshop import Job, Workshop

Way = Callable[[], Awaitable[Any]]
BlockingWay = Callable[[], Any]

NEIGHBOUR: Final = "neighbour"
_WORKERS: Final = 4
_HUGE: Final = 3_000_000
_MOST_TRIES: Final = 4
"""One retry, and what a real broker may count too much."""
_SETTLED: Final = (Status.PROCESSED, Status.DEAD_LETTERED)


class Panic(BaseException):
    """As extensions in other languages raise it: no Exception."""


class _Mute(Exception):
    """An error that cannot be put into words."""

    def __str__(self) -> str:
        raise ValueError("no words")

    __repr__ = __str__


class _PanicsWhenAsked(Exception):
    def __str__(self) -> str:
        raise Panic

    __repr__ = __str__


class _NoText(Exception):
    def __str__(self) -> str:
        return 42  # type: ignore[return-value]

    __repr__ = __str__


class _Endless(Exception):
    def __str__(self) -> str:
        return str(self)

    __repr__ = __str__


class _HidesItsClass(Exception):
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise ValueError("no class")


class _Nameless(type):
    @property
    def __name__(cls) -> Any:  # type: ignore[override]
        raise ValueError("no name")


class _HidesItsName(Exception, metaclass=_Nameless):
    """An error whose class does not say what it is called."""


class _AnswersNothing(Exception):
    def __getattribute__(self, name: str) -> Any:
        raise ValueError(name)


class _Circular(ExceptionGroup[Exception]):
    """A group that says it is a member of itself."""

    @property
    def exceptions(self) -> Any:
        return (self,)


_DEPTH: Final = 5_000
"""More groups in one another than a recursion goes down."""


# -- ways to end a coroutine -------------------------------------------------------------------


def _me() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def _neighbour() -> None:
    """Behaves."""
    await yield_to_loop()


async def _returns_much() -> object:
    return [b"x" * _HUGE]


async def _leaves_a_cancellation_behind() -> None:
    _me().cancel()


async def _leaves_several_behind() -> None:
    for _ in range(3):
        _me().cancel()


async def _uncancels_too_often() -> None:
    for _ in range(3):
        _me().uncancel()


async def _cancels_and_uncancels_itself() -> None:
    _me().cancel()
    _me().uncancel()


async def _times_out_by_hand() -> None:
    asyncio.get_running_loop().call_soon(_me().cancel)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return


async def _blocks_the_loop() -> None:
    end_s = SYSTEM_CLOCK.now_s() + 0.05
    while SYSTEM_CLOCK.now_s() < end_s:
        pass


async def _leaves_a_task_behind() -> None:
    _left_behind.append(asyncio.create_task(yield_to_loop(), name="left behind"))
    del _left_behind[:-1]


async def _closes_the_loops_executor() -> None:
    await asyncio.get_running_loop().shutdown_default_executor()


async def _forks() -> None:
    _fork()


async def _raises() -> NoReturn:
    raise ValueError("no")


async def _panics() -> NoReturn:
    raise Panic("at the disco")


async def _cancels_itself() -> NoReturn:
    _me().cancel()
    await asyncio.Event().wait()
    raise AssertionError("never here")


async def _raises_a_cancellation() -> NoReturn:
    raise asyncio.CancelledError


async def _awaits_what_was_cancelled() -> None:
    task = asyncio.create_task(asyncio.Event().wait())
    await yield_to_loop()
    task.cancel()
    await task


async def _raises_while_cancelled() -> NoReturn:
    _me().cancel()
    try:
        await asyncio.Event().wait()
    finally:
        raise ValueError("and again no")


async def _raises_with_a_cancellation_pending() -> NoReturn:
    _me().cancel()
    raise RejectMessage("cancelled, and rejected")


async def _raises_a_group() -> NoReturn:
    raise ExceptionGroup("several", [ValueError("one"), ExceptionGroup("more", [_Mute()])])


async def _raises_a_group_with_a_panic() -> NoReturn:
    raise BaseExceptionGroup("several", [ValueError("one"), Panic("two")])


async def _raises_a_group_with_a_cancellation() -> NoReturn:
    raise BaseExceptionGroup("several", [asyncio.CancelledError(), ValueError("two")])


async def _recurses() -> NoReturn:
    _recurse()


async def _raises_what_cannot_be_said() -> NoReturn:
    raise _Mute


async def _raises_what_panics_when_asked() -> NoReturn:
    raise _PanicsWhenAsked


async def _raises_what_says_no_text() -> NoReturn:
    raise _NoText


async def _raises_what_never_ends_to_say() -> NoReturn:
    raise _Endless


async def _raises_much() -> NoReturn:
    raise ValueError("x" * _HUGE)


async def _raises_half_a_character() -> NoReturn:
    raise ValueError("\ud800\x00\x1b\uffff")


async def _raises_a_circle() -> NoReturn:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    raise first


async def _raises_what_hides_its_class() -> NoReturn:
    raise _HidesItsClass


async def _raises_what_hides_its_name() -> NoReturn:
    raise _HidesItsName


async def _raises_what_answers_nothing() -> NoReturn:
    raise _AnswersNothing


async def _raises_a_circular_group() -> NoReturn:
    raise _Circular("a circle", [ValueError("one")])


async def _raises_a_deep_group() -> NoReturn:
    _raise_deep_group()


async def _stops_iterating() -> NoReturn:
    raise StopIteration


async def _stops_iterating_later() -> NoReturn:
    raise StopAsyncIteration


async def _exits_a_generator() -> NoReturn:
    raise GeneratorExit


async def _rejects_without_words() -> NoReturn:
    raise RejectMessage(None)  # type: ignore[arg-type]


async def _rejects_with_what_cannot_be_said() -> NoReturn:
    raise InvalidMessage(_Mute())  # type: ignore[arg-type]


async def _defers_by_no_time() -> NoReturn:
    raise DeferMessage(5)  # type: ignore[arg-type]


async def _is_out_of_memory() -> NoReturn:
    raise MemoryError


def _recurse() -> NoReturn:
    # A collection at the bottom would run the callbacks of others out of stack.
    gc.disable()
    try:
        _dive()
    finally:
        gc.enable()


def _dive() -> NoReturn:
    _dive()


def _raise_deep_group() -> NoReturn:
    error: Exception = ValueError("at the bottom")
    for _ in range(_DEPTH):
        error = ExceptionGroup("one more", [error])
    raise error


def _fork() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Threads are there; the child ends.
        child = os.fork()
    if child:
        os.waitpid(child, 0)
    # The child goes on here, and would be a second pump on the same connections.


_left_behind: list[asyncio.Task[None]] = []

ENDS_WELL: Final[Sequence[Way]] = (
    _neighbour,
    _returns_much,
    _leaves_a_cancellation_behind,
    _leaves_several_behind,
    _uncancels_too_often,
    _cancels_and_uncancels_itself,
    _times_out_by_hand,
    _blocks_the_loop,
    _leaves_a_task_behind,
    _closes_the_loops_executor,
    _forks,
)
FAILS: Final[Sequence[Way]] = (
    _raises,
    _panics,
    _cancels_itself,
    _raises_a_cancellation,
    _awaits_what_was_cancelled,
    _raises_while_cancelled,
    _raises_with_a_cancellation_pending,
    _raises_a_group,
    _raises_a_group_with_a_panic,
    _raises_a_group_with_a_cancellation,
    _recurses,
    _raises_what_cannot_be_said,
    _raises_what_panics_when_asked,
    _raises_what_says_no_text,
    _raises_what_never_ends_to_say,
    _raises_much,
    _raises_half_a_character,
    _raises_a_circle,
    _raises_what_hides_its_class,
    _raises_what_hides_its_name,
    _raises_what_answers_nothing,
    _raises_a_circular_group,
    _raises_a_deep_group,
    _stops_iterating,
    _stops_iterating_later,
    _exits_a_generator,
    _rejects_without_words,
    _rejects_with_what_cannot_be_said,
    _defers_by_no_time,
    _is_out_of_memory,
)


# -- ways to end when told to stop -------------------------------------------------------------


async def _waits_for_ever() -> None:
    await asyncio.Event().wait()


async def _swallows_its_recall() -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return


async def _goes_on_when_recalled() -> None:
    let_go = asyncio.Event()
    _never_ending.append(let_go)
    while not let_go.is_set():
        with suppress(asyncio.CancelledError):
            await let_go.wait()


_never_ending: list[asyncio.Event] = []


async def _raises_when_recalled() -> None:
    try:
        await asyncio.Event().wait()
    finally:
        raise ValueError("in the way")


async def _panics_when_recalled() -> None:
    try:
        await asyncio.Event().wait()
    finally:
        raise Panic("in the way")


RECALLED: Final[Sequence[Way]] = (
    _waits_for_ever,
    _swallows_its_recall,
    _goes_on_when_recalled,
    _raises_when_recalled,
    _panics_when_recalled,
)


# -- ways to end a call in a thread ------------------------------------------------------------


def _works() -> None:
    """Behaves."""


def _returns_much_in_a_thread() -> object:
    return [b"x" * _HUGE]


def _returns_an_awaitable() -> Awaitable[None]:
    return yield_to_loop()


def _leaves_a_thread_behind() -> None:
    threading.Thread(target=_works, daemon=True).start()


def _forks_in_a_thread() -> None:
    _fork()


def _in_a_thread(error: Callable[[], BaseException], name: str) -> BlockingWay:
    def way() -> NoReturn:
        raise error()

    way.__qualname__ = way.__name__ = name
    return way


ENDS_WELL_IN_A_THREAD: Final[Sequence[BlockingWay]] = (
    _works,
    _returns_much_in_a_thread,
    _returns_an_awaitable,
    _leaves_a_thread_behind,
    _forks_in_a_thread,
)


def _recurses_in_a_thread() -> NoReturn:
    _recurse()


def _raises_a_deep_group_in_a_thread() -> NoReturn:
    _raise_deep_group()


def _returns_a_generator() -> object:
    return (each for each in "never run")


def _returns_an_async_generator() -> object:
    async def never_run() -> Any:
        yield

    return never_run()


FAILS_IN_A_THREAD: Final[Sequence[BlockingWay]] = (
    _in_a_thread(lambda: ValueError("no"), "raises"),
    _in_a_thread(lambda: Panic("no"), "panics"),
    _in_a_thread(asyncio.CancelledError, "raises a cancellation"),
    _in_a_thread(concurrent.futures.CancelledError, "raises a future's cancellation"),
    _in_a_thread(StopIteration, "stops iterating"),
    _in_a_thread(StopAsyncIteration, "stops iterating later"),
    _in_a_thread(GeneratorExit, "exits a generator"),
    _in_a_thread(_Mute, "raises what cannot be said"),
    _in_a_thread(_HidesItsClass, "raises what hides its class"),
    _in_a_thread(_HidesItsName, "raises what hides its name"),
    _in_a_thread(_AnswersNothing, "raises what answers nothing"),
    _in_a_thread(lambda: BaseExceptionGroup("several", [Panic("no")]), "raises a group"),
    _in_a_thread(lambda: ValueError("x" * _HUGE), "raises much"),
    _recurses_in_a_thread,
    _raises_a_deep_group_in_a_thread,
    _returns_a_generator,
    _returns_an_async_generator,
)


class HostileContract(ContractTests):
    """Whatever a handler does, its message is settled or comes again, and the pump goes on."""

    async def test_when_coroutines_end_in_any_way_then_each_is_settled_and_neighbours_go_on(
        self, rig: Rig
    ) -> None:
        """R93: laws 4 and 7, for everything that a coroutine can do."""
        await try_ways(rig, expected(ENDS_WELL, FAILS))

    async def test_when_threads_end_in_any_way_then_each_is_settled_and_neighbours_go_on(
        self, rig: Rig
    ) -> None:
        """R93: laws 4 and 7, for everything that a call in a thread can do."""
        await try_blocking_ways(rig, expected(ENDS_WELL_IN_A_THREAD, FAILS_IN_A_THREAD))

    async def test_when_told_to_stop_in_vain_then_the_pump_drains_and_the_message_comes_again(
        self, rig: Rig
    ) -> None:
        """R93: laws 5 and 6, for handlers that do not want to end."""
        await try_recalls(rig, RECALLED)


Expected = Mapping[Callable[[], Any], Status]
"""What becomes of a message in the end, by the way its handler ends."""


def name_of(way: Callable[[], Any]) -> str:
    """What a way is called in tasks and in failures."""
    return way.__name__.lstrip("_").replace("_", " ")


def expected(well: Sequence[Callable[[], Any]], badly: Sequence[Callable[[], Any]]) -> Expected:
    """Those that end well are processed, the others dead-lettered once their retry is used up."""
    return {
        **dict.fromkeys(well, Status.PROCESSED),
        **dict.fromkeys(badly, Status.DEAD_LETTERED),
    }


async def try_ways(rig: Rig, statuses: Expected) -> None:
    """Handle a message by each of these ways, and a well-behaved one after each."""
    ways = {name_of(way): way for way in statuses}

    async def handle(job: Job) -> None:
        await ways.get(job.task, _neighbour)()

    await _try(rig, handle, statuses)


async def try_blocking_ways(rig: Rig, statuses: Expected) -> None:
    """The same with a handler that runs in threads."""
    ways = {name_of(way): way for way in statuses}

    def handle(job: Job) -> Any:
        return ways.get(job.task, _works)()

    await _try(rig, handle, statuses)


async def try_recalls(rig: Rig, ways: Sequence[Way]) -> None:
    """Drain a pump whose handlers run in these ways, and find each message again."""
    by_name = {name_of(way): way for way in ways}
    started: list[str] = []

    async def handle(job: Job) -> None:
        started.append(job.task)
        await by_name[job.task]()

    shop = Workshop(
        rig,
        handle,
        concurrency=len(ways),
        dead_letter_queue=rig.name("dead"),
        failure=hybrid(0),
        drain_timeout=timedelta(seconds=rig.tick_s),
    )
    try:
        async with shop.working():
            ids = await shop.post(*by_name)
            await shop.until(lambda: sorted(started) == sorted(by_name))
        back = await rig.channel(shop.subscription).take(len(ids))
    finally:
        while _never_ending:
            _never_ending.pop().set()

    # What goes on in vain ends now, and must not settle its message once more.
    await rig.settle()
    names = dict(zip(ids, by_name, strict=True))
    assert sorted(names[each.message.id] for each in back) == sorted(by_name)
    assert shop.noted("ack") == []
    assert len(shop.noted("defer")) == len(ids)


async def _try(rig: Rig, handle: Callable[[Job], Any], statuses: Expected) -> None:
    pause = timedelta(seconds=rig.tick_s / 2)
    shop = Workshop(
        rig,
        handle,
        concurrency=_WORKERS,
        dead_letter_queue=rig.name("dead"),
        failure=hybrid(1, backoff=Backoff(initial=pause, maximum=pause, jitter=0)),
    )
    async with shop.working() as dispatcher:
        [performer] = dispatcher.performers
        names = [name for way in statuses for name in (name_of(way), NEIGHBOUR)]
        ids = await shop.post(*names)
        try:
            await shop.until(lambda: set(_fates(shop)) == set(ids))
        except AssertionError:
            unsettled = [name for name, id_ in zip(names, ids, strict=True) if not _fate(shop, id_)]
            raise AssertionError(f"neither settled nor come again: {unsettled}") from None
        # As many at once as there are workers: each must still be there.
        last = await shop.post(*[NEIGHBOUR] * _WORKERS)
        await shop.until(lambda: set(_fates(shop)) >= set(last))

    assert performer.stats.restarts == 0
    wanted = {name_of(way): status.value for way, status in statuses.items()}
    found = {name: _fate(shop, id_) for name, id_ in zip(names, ids, strict=True)}
    assert found == {**wanted, NEIGHBOUR: wanted.get(NEIGHBOUR, Status.PROCESSED.value)}
    tries = max(each.attempt for each in shop.outcomes if each.status is not Status.RETRYING)
    assert tries <= _MOST_TRIES, f"one was tried {tries} times, and has one retry"
    neighbours = {
        _fate(shop, id_) for name, id_ in zip(names, ids, strict=True) if name == NEIGHBOUR
    }
    assert neighbours == {Status.PROCESSED.value}


def _fates(shop: Workshop) -> dict[str, str]:
    return {
        event.message_id: event.status.value for event in shop.outcomes if event.status in _SETTLED
    }


def _fate(shop: Workshop, id_: str) -> str:
    return _fates(shop).get(id_, "")
