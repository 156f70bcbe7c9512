"""Invoking: one call of a function, within its time."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import Awaitable, Callable, Iterator, Set
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import attrs

from pump.clock import Clock
from pump.errors import HandlerTimeout
from pump.message import new_id

from ..._aws.sdk import DaemonThreads
from ..model import QueueId, partition_of
from .function_code import Contained, FunctionCode, FunctionExited, describe, trace_of

_GRACE_S: Final = 1.0
"""How long a coroutine that was cancelled may take to end before it counts as abandoned."""


class Invoker:
    """Calls one function, in one of so many threads; nothing waits for them at exit."""

    def __init__(
        self, code: FunctionCode, clock: Clock, *, timeout_s: float, max_threads: int
    ) -> None:
        self._code = code
        self._clock = clock
        self._timeout_s = timeout_s
        self._name = f"function-{code.target}"
        self._threads = DaemonThreads(max_threads, self._name)

    async def load(self) -> None:
        """Import the function; ConfigurationError when there is none.

        Cancelled, it leaves the import behind: a module may wait for ever while it is imported.
        """
        # A thread of its own, which ends with it: code that is loaded may never be invoked.
        thread = DaemonThreads(1, f"{self._name}-import")
        future = thread.submit(self._code.load)
        thread.shutdown()
        await asyncio.wrap_future(future)

    async def invoke(self, event: dict[str, Any], context: LambdaContext) -> Returned | Failed:
        """Call the function once. Raises nothing but cancellation, which abandons the call."""
        call = FunctionCall(self._code, event, context)
        future = self._threads.submit(call.run)
        try:
            outcome = await self._wait(future, self._timeout_s)
            if outcome is not None:
                return outcome
            if call.cancel():
                await self._wait(future, _GRACE_S)
        finally:
            call.cancel()
        error = describe(HandlerTimeout(self._code.target, self._timeout_s))
        return Failed(error, still_running=None if future.done() else future)

    def shutdown(self) -> None:
        """Let idle threads end; one that is stuck in the function stays until it returns."""
        self._threads.shutdown()

    async def _wait(self, future: Future[Any], timeout_s: float) -> Returned | Failed | None:
        try:
            async with self._clock.timeout(timeout_s):
                outcome: Returned | Failed = await asyncio.wrap_future(future)
                return outcome
        except TimeoutError:
            return None


# The context: the second argument of a Lambda function, as Python's runtime has it.

MEMORY_MB = 128
"""Lambda's default; nothing here limits a function's memory."""


@attrs.frozen
class CognitoIdentity:
    """Of a caller that came through Cognito: never here."""

    cognito_identity_id: str | None = None
    cognito_identity_pool_id: str | None = None


@attrs.frozen(kw_only=True)
class LambdaContext:
    """About this invocation. Ids and names have the shape they have on AWS."""

    aws_request_id: str
    function_name: str
    invoked_function_arn: str
    log_group_name: str
    log_stream_name: str
    function_version: str = "$LATEST"
    memory_limit_in_mb: str = str(MEMORY_MB)
    """Text, as in Lambda's Python runtime."""
    client_context: None = None
    identity: CognitoIdentity = CognitoIdentity()
    _remaining_s: Callable[[], float] = attrs.field(repr=False, eq=False)

    def get_remaining_time_in_millis(self) -> int:
        """How long until this invocation counts as timed out."""
        return max(0, round(self._remaining_s() * 1_000))

    def log(self, message: object) -> None:
        """Print it; Lambda's runtime has this for functions written long ago."""
        print(message, flush=True)


def make_context(
    function_name: str, address: QueueId, clock: Clock, timeout_s: float
) -> LambdaContext:
    """The context of an invocation that begins now."""
    request_id = str(UUID(new_id()))
    ends_at_s = clock.now_s() + timeout_s
    day = datetime.fromtimestamp(clock.time_s(), UTC).strftime("%Y/%m/%d")
    place = f"{partition_of(address.region)}:lambda:{address.region}:{address.account}"
    return LambdaContext(
        aws_request_id=request_id,
        function_name=function_name,
        invoked_function_arn=f"arn:{place}:function:{function_name}",
        log_group_name=f"/aws/lambda/{function_name}",
        log_stream_name=f"{day}/[$LATEST]{request_id.replace('-', '')}",
        remaining_s=lambda: ends_at_s - clock.now_s(),
    )


# The response: which messages a function's return value says have failed. Pure.
#
# Only with `report_batch_item_failures`. As AWS documents it: nothing, an empty answer (text and
# list too) and an empty or null list say that all is done; an answer that makes no sense fails the
# whole batch, because what it meant to keep must not be deleted.

MAX_ANSWER_BYTES: Final = 6 * 1024 * 1024 + 100
"""Lambda documents 6 MB; this is the number that its error names."""

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False)


class MalformedResponse(ValueError):
    """The function returned what Lambda cannot read; the whole batch has failed."""


def as_json(value: object) -> Any:
    """A return value as Lambda gets it. Raises MalformedResponse when it does not.

    May run code of the function's, and raise what that raises: a value may be of its own classes.
    """
    try:
        return json.loads("".join(_chunks(value)))
    except MalformedResponse:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise MalformedResponse(f"the function returned what JSON cannot hold: {error}") from None


def _chunks(value: object) -> Iterator[str]:
    # Piece by piece, unlike `json.dumps`, which lets no other thread run until it is done, and
    # makes the whole of what is then too large.
    size = 0
    for chunk in _ENCODER.iterencode(value):
        size += len(chunk.encode(errors="surrogatepass"))
        if size > MAX_ANSWER_BYTES:
            raise MalformedResponse(
                f"the function returned more than {MAX_ANSWER_BYTES:,} bytes of JSON, "
                f"Lambda's limit"
            )
        yield chunk


def failed_ids(answer: Any, sent: Set[str]) -> Set[str]:
    """The ids among `sent` that the answer reports. Raises MalformedResponse."""
    if answer is None or answer in ("", []):  # nothing at all, in any of JSON's words
        return frozenset()
    if not isinstance(answer, dict):
        raise MalformedResponse(
            f"the function returned {type(answer).__name__}, not a table with batchItemFailures"
        )
    failures = answer.get("batchItemFailures")
    if failures is None:
        return frozenset()
    if not isinstance(failures, list):
        raise MalformedResponse("batchItemFailures is not a list")
    return frozenset(_identifier(failure, sent) for failure in failures)


def _identifier(failure: Any, sent: Set[str]) -> str:
    identifier = failure.get("itemIdentifier") if isinstance(failure, dict) else None
    if not isinstance(identifier, str) or not identifier:
        raise MalformedResponse('an item failure is not {"itemIdentifier": "<messageId>"}')
    if identifier not in sent:
        raise MalformedResponse(f"itemIdentifier {identifier!r} is not in this batch")
    return identifier


# A call: a function's run in a thread; what came of it is a value.
#
# All that is the function's happens there, its event loop, the reading of its answer and the words
# for its errors included: any of it may block for ever, and must not do so on the server's loop.

_OURS: Final = (FunctionExited, MalformedResponse)
"""Errors whose text says it all; a traceback would show nothing of the function."""


@attrs.frozen
class Returned:
    """It came to its end; `answer` is what Lambda would have got, as JSON's values."""

    answer: Any


@attrs.frozen
class Failed:
    """It raised, ran out of time, or returned what cannot be read."""

    error: str
    traceback: str | None = attrs.field(default=None, repr=False)
    still_running: Future[Any] | None = None
    """A thread that goes on: nothing can stop it."""


class FunctionCall:
    """One call of a function: `run` it in a thread, `cancel` it from any other."""

    def __init__(self, code: FunctionCode, event: dict[str, Any], context: LambdaContext) -> None:
        self._code = code
        self._event = event
        self._context = context
        self._lock = threading.Lock()
        self._is_cancelled = False
        self._stop: Callable[[], object] | None = None

    def run(self) -> Returned | Failed:
        """Call the function as its files are now, and wait for its end. Raises nothing.

        An error is no exception here: a future could not carry a StopIteration.
        """
        try:
            with Contained(Exception):
                return Returned(as_json(self._run()))
        except _OURS as error:
            return Failed(describe(error))
        except Exception as error:  # broad: a function may raise anything
            return Failed(describe(error), trace_of(error))

    def cancel(self) -> bool:
        """Do not call the function any more; where it runs as a coroutine, cancel that.

        True says so, and that it may end soon. Nothing stops code that blocks.
        """
        with self._lock:
            self._is_cancelled = True
            if self._stop is None:
                return False
            self._stop()
            return True

    def _run(self) -> Any:
        with self._code.edition() as function:
            if self._is_cancelled:
                return None  # Importing the code took all the time there was.
            value = function(self._event, self._context)
            if inspect.isawaitable(value):
                # A loop for each call: what blocks it, blocks nothing else.
                with asyncio.Runner() as runner:
                    value = runner.run(self._await(value))
            return value

    async def _await(self, value: Awaitable[Any]) -> Any:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        with self._lock:
            if self._is_cancelled:
                task.cancel()
            self._stop = lambda: loop.call_soon_threadsafe(task.cancel)
        try:
            # What asyncio lets out of its loop, it also reports as never retrieved.
            with Contained(Exception, asyncio.CancelledError):
                return await value
        finally:
            with self._lock:
                self._stop = None
