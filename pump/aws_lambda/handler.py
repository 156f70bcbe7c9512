"""Handler: the function that Lambda calls, once an event and for as long as it keeps us.

The app lives on one event loop in a thread of its own, opened by the first event and kept: its
clients and connection pools belong to that loop and serve the next event too. Nothing is left
running on it when an event is answered, so nothing is cut in half when Lambda freezes the
process; what the other side closed meanwhile is noticed when the loop goes on, before the next
call. And the thread that waits stays awake: where a handler blocks the loop, it can still answer
in time for the messages that were done.
"""

from __future__ import annotations

import atexit
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from ..blocking import Portal
from ..errors import BatchFailed
from ..observability import vocabulary
from ..observability.log import get_logger
from .answer import Answer
from .consumer import EventConsumer
from .options import LambdaOptions

if TYPE_CHECKING:
    from ..app import App

_log = get_logger("pump.lambda")
_CLOSE_S = 1.0
"""How long a process that was told to end takes to close; Lambda waits two seconds at most."""
_LAST_CALL_SHARE = 0.1
"""The part of the margin before the end at which the answer is given, come what may."""
Response = dict[str, list[dict[str, str]]]
"""The partial-batch response, as Lambda reads it."""


class InvocationContext(Protocol):
    """What we ask of the context that Lambda passes along."""

    def get_remaining_time_in_millis(self) -> int:
        """How long the function may still run."""


class LambdaHandler:
    """Handles SQS events: `lambda_handler = app.lambda_handler()`. Any thread may call it.

    The first call opens the app. An error that is raised, or a process that dies, brings the
    whole event again; see `App.lambda_handler` for what is answered.
    """

    def __init__(self, app: App, options: LambdaOptions) -> None:
        self._app = app
        self._options = options
        # Reentrant: a signal's handler runs on top of whatever its thread was doing.
        self._lock = threading.RLock()
        self._open: _Open | None = None
        self._is_registered = False

    def __call__(self, event: object, context: InvocationContext | None = None) -> Response:
        """Have the event's messages handled, and return those that failed."""
        clock = self._app.clock
        remaining_s = _remaining_s(context)
        ends_at_s = None if remaining_s is None else clock.now_s() + remaining_s
        opened = self._opened()
        answer = opened.consumer.read(event)
        left_s = None if ends_at_s is None else ends_at_s - clock.now_s()
        self._wait_for(opened, answer, ends_at_s, left_s)
        # Asked once: where the loop was left behind, records may still be completed.
        failed_ids = answer.failed_ids
        if failed_ids and not self._options.partial_batches:
            raise BatchFailed(tuple(failed_ids), len(answer.records))
        return {"batchItemFailures": [{"itemIdentifier": each} for each in failed_ids]}

    def close(self) -> None:
        """Close the app, as far as that is possible in a second; a later call opens it again.

        Called by itself when the process ends or gets SIGTERM, which Lambda sends only to
        functions with an extension.
        """
        with self._lock:
            opened, self._open = self._open, None
            if opened is not None:
                opened.close()

    def _wait_for(
        self, opened: _Open, answer: Answer, ends_at_s: float | None, left_s: float | None
    ) -> None:
        work = opened.consumer.handle(answer, ends_at_s=ends_at_s)
        try:
            opened.portal.call(work, timeout_s=self._patience_s(left_s))
        except TimeoutError:
            _log.error(
                vocabulary.INVOCATION_EXPIRED,
                failed=len(answer.failed_ids),
                remedy="a handler blocks the event loop or resists its cancellation: make a "
                "blocking handler a plain function, and the function's timeout longer",
            )

    def _patience_s(self, left_s: float | None) -> float | None:
        if left_s is None:
            return None
        margin_s = min(self._options.margin.total_seconds(), left_s / 2)
        return max(0.0, left_s - margin_s * _LAST_CALL_SHARE)

    def _opened(self) -> _Open:
        with self._lock:
            if self._open is None:
                self._open = _Open(self._app, self._options, self.close)
                if not self._is_registered:
                    self._is_registered = True
                    _at_exit(self._close_at_exit)
            return self._open

    def _close_at_exit(self) -> None:
        try:
            self.close()
        except RuntimeError as error:
            # No thread can be had any more, and closing takes some. All that was answered is
            # settled; connections end with the process.
            _log.debug(vocabulary.CLOSE_FAILED, error=repr(error))


class _Open:
    """The app on its loop, and who is told when the process ends."""

    def __init__(self, app: App, options: LambdaOptions, close: Callable[[], None]) -> None:
        self._app = app
        self._close = close
        self.portal = Portal()
        self.portal.start()
        try:
            self.consumer = self.portal.call(self._enter(options))
        except BaseException:
            self.portal.stop()
            raise
        self._before = _on_sigterm(self._end)

    async def _enter(self, options: LambdaOptions) -> EventConsumer:
        await self._app.__aenter__()
        try:
            return self._app.event_consumer(options)
        except BaseException:
            await self._app.__aexit__(None, None, None)
            raise

    async def _leave(self) -> None:
        try:
            await self.consumer.aclose()
        finally:
            await self._app.__aexit__(None, None, None)

    def close(self) -> None:
        if _is_main_thread() and signal.getsignal(signal.SIGTERM) == self._end:
            signal.signal(signal.SIGTERM, self._before)
        try:
            self.portal.call(self._leave(), timeout_s=_CLOSE_S)
        except TimeoutError:
            return  # The loop is busy for ever; its thread ends with the process.
        self.portal.stop()

    def _end(self, number: int, frame: FrameType | None) -> None:
        """Close, then do what the signal would have done without us."""
        signal.signal(number, self._before)
        self._close()
        signal.raise_signal(number)


def _at_exit(close: Callable[[], None]) -> None:
    """Have `close` called when the process ends, while threads can still be had: what `atexit`
    calls comes after Python has shut down its thread pools, which SDKs are closed in. The hook that
    `concurrent.futures` itself uses comes before, newest first; it is not public.
    """
    register: Callable[[Callable[[], None]], object]
    register = getattr(threading, "_register_atexit", atexit.register)
    register(close)


def _on_sigterm(end: Callable[[int, FrameType | None], None]) -> Any:
    """Have `end` called, and return what was to be done before."""
    if not _is_main_thread():
        return signal.SIG_DFL  # Python lets no other thread arrange it.
    return signal.signal(signal.SIGTERM, end) or signal.SIG_DFL


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _remaining_s(context: InvocationContext | None) -> float | None:
    """None without a context of Lambda's, as in a test: then nothing is stopped."""
    ask = getattr(context, "get_remaining_time_in_millis", None)
    return None if ask is None else ask() / 1000
