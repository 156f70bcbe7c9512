"""Invoking: a function's code, found and kept up to date, and one call of it, within its time."""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Set
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import cache
from importlib import import_module, invalidate_caches
from importlib.util import cache_from_source
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from uuid import UUID

import attrs

from pump.clock import Clock
from pump.errors import ConfigurationError, HandlerTimeout
from pump.gateway_url import OUR_PACKAGES
from pump.message import new_id
from pump.observability import vocabulary
from pump.observability.log import get_logger

from ..._aws.sdk import DaemonThreads
from ..model import QueueId, partition_of

# A function's code: found by name, and imported anew when its files have changed.
#
# Files are looked at when the function is about to be called, never in between. What is watched:
# the function's module, and the modules of the same package, or of the same folder where it stands
# alone, within the project. All of them are imported anew together, so that none keeps a name of
# an older one. Code that does not import leaves the old code in place until it changes again.

Stamp = tuple[int, int] | None

_NOT_THE_PROJECTS: Final = frozenset({"site-packages", "dist-packages", "node_modules"})
_log = get_logger("gateways.sqs_server")


class FunctionCode:
    """The code behind `module:function`. Its methods block, and may be called from any thread."""

    def __init__(self, target: str, *, origin: str, root: Path, reloads: bool) -> None:
        self.target = target
        self._origin = origin
        self._root = root
        self._reloads = reloads
        self._module_name, _, self._attribute = target.partition(":")
        self._lock = threading.Lock()
        self._edition: Edition | None = None
        self._stamps: dict[Path, Stamp] = {}
        self._folder: Path | None = None
        """Where the neighbours of a module that stands alone are; None in a package."""

    def load(self) -> Function:
        """Import it unless that was done; ConfigurationError when there is no such function."""
        with self._lock:
            if self._edition is None:
                self._root = self._root.resolve()
                if str(self._root) not in sys.path:
                    sys.path.insert(0, str(self._root))
                self._edition = Edition(self._import(), self.target)
                self._folder = self._find_folder()
                self._stamps = self._look()
            return self._edition.function

    def edition(self) -> Edition:
        """The function as its files are now; as it was, when they are broken."""
        self.load()
        with self._lock:
            assert self._edition is not None
            if self._reloads:
                changed = [path for path, stamp in self._stamps.items() if _stamp(path) != stamp]
                if changed:
                    self._reload(self._edition, changed)
            return self._edition

    def _reload(self, before: Edition, changed: Iterable[Path]) -> None:
        old = self._modules()
        _forget(old, changed)
        try:
            function = self._import()
        except ConfigurationError as error:
            # What was imported by halves must not stay beside the old modules.
            _forget(self._modules(), ())
            sys.modules.update(old)
            self._stamps = self._look() | {path: _stamp(path) for path in self._blamed(error)}
            _log.error(
                vocabulary.CODE_REFUSED,
                function=self.target,
                files=sorted(path.name for path in changed),
                error=error.remedy,
            )
        else:
            self._stamps = self._look()
            if function is not before.function:
                self._edition = Edition(function, self.target)
                # Before the new one is called: both may want the same file or port.
                before.retire()
            _log.info(
                vocabulary.CODE_RELOADED,
                function=self.target,
                files=sorted(path.name for path in changed),
            )

    def _import(self) -> Function:
        try:
            with Contained(Exception, SystemExit):
                module = import_module(self._module_name)
        except ModuleNotFoundError as error:
            missing = error.name or ""
            if self._module_name == missing or self._module_name.startswith(f"{missing}."):
                raise self._wrong(
                    f"there is no module {missing!r} in {self._root} or on Python's path; "
                    f"start in the folder that holds it, or correct its name"
                ) from error
            raise self._broken(error) from error
        except (Exception, SystemExit) as error:  # broad: a user's module may raise anything
            raise self._broken(error) from error
        return self._find(module)

    def _find(self, module: ModuleType) -> Function:
        found: Any = module
        for part in self._attribute.split("."):
            if not hasattr(found, part):
                raise self._wrong(self._nothing_there(module))
            found = getattr(found, part)
        if not callable(found):
            raise self._wrong("this is not a function; name one that takes (event, context)")
        if not _takes_two(found):
            raise self._wrong("Lambda calls a function with (event, context); let it take both")
        return found  # type: ignore[no-any-return]

    def _nothing_there(self, module: ModuleType) -> str:
        functions = [name for name, value in vars(module).items() if inspect.isfunction(value)]
        close = get_close_matches(self._attribute, functions, n=1)
        hint = f"did you mean {self._module_name}:{close[0]}?" if close else "define it there"
        return f"module {self._module_name} has no {self._attribute!r}; {hint}"

    def _broken(self, error: BaseException) -> ConfigurationError:
        return self._wrong(f"importing {self._module_name} failed, correct it: {describe(error)}")

    def _wrong(self, remedy: str) -> ConfigurationError:
        return ConfigurationError(f"{self._origin}.function", self.target, remedy)

    def _look(self) -> dict[Path, Stamp]:
        files = (_file_of(module) for module in self._modules().values())
        return {path: _stamp(path) for path in files if path is not None}

    def _modules(self) -> dict[str, ModuleType]:
        """Of everything that is imported, what belongs to the function."""
        return {
            name: module
            for name, module in list(sys.modules.items())
            if name.partition(".")[0] not in OUR_PACKAGES and self._is_ours(name, _file_of(module))
        }

    def _is_ours(self, name: str, path: Path | None) -> bool:
        if path is None or not self._is_in_project(path):
            return False
        top = self._module_name.partition(".")[0]
        if name.partition(".")[0] == top:
            return True
        return self._folder is not None and path.is_relative_to(self._folder)

    def _find_folder(self) -> Path | None:
        own = _file_of(sys.modules[self._module_name])
        return own.parent if own is not None and own.stem == self._module_name else None

    def _is_in_project(self, path: Path) -> bool:
        if not path.is_relative_to(self._root):
            return False
        parts = path.relative_to(self._root).parts
        return not any(part in _NOT_THE_PROJECTS or part.startswith(".") for part in parts)

    def _blamed(self, error: BaseException) -> set[Path]:
        """The project's files that a failed import names; they may be new to us."""
        cause = error.__cause__
        files = {cause.filename} if isinstance(cause, SyntaxError) and cause.filename else set()
        trace = cause.__traceback__ if cause is not None else None
        while trace is not None:
            files.add(trace.tb_frame.f_code.co_filename)
            trace = trace.tb_next
        paths = {Path(file).resolve() for file in files if not file.startswith("<")}
        return {path for path in paths if self._is_in_project(path)}


def _forget(modules: Mapping[str, ModuleType], changed: Iterable[Path]) -> None:
    for name in modules:
        sys.modules.pop(name, None)
    for path in changed:
        # Python takes compiled code for fresh when size and the second of the change agree.
        with suppress(OSError):
            Path(cache_from_source(str(path))).unlink()
    invalidate_caches()


def _file_of(module: ModuleType | None) -> Path | None:
    file = getattr(module, "__file__", None)
    return _resolve(file) if isinstance(file, str) and file.endswith(".py") else None


@cache
def _resolve(file: str) -> Path:
    # A program has a thousand modules, and each lies where it lay.
    return Path(file).resolve()


def _stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _takes_two(function: Callable[..., object]) -> bool:
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # Some built-in callables have no signature.
        return True
    return True


# An edition of a function: what one import of its code gave.
#
# A function may be an object that holds things open, as a Pumphouse app behind Lambda does. Then it
# has a `close`, which is called when a newer edition takes its place; calls under way end first.

Function = Callable[[Any, Any], Any]


class Edition:
    """A function to call while it is entered, by any number of threads."""

    def __init__(self, function: Function, target: str) -> None:
        self.function = function
        self._target = target
        self._lock = threading.Lock()
        self._call_count = 0
        self._is_retired = False

    def __enter__(self) -> Function:
        with self._lock:
            self._call_count += 1
        return self.function

    def __exit__(self, *exc_info: object) -> None:
        with self._lock:
            self._call_count -= 1
            is_over = self._is_retired and not self._call_count
        if is_over:
            self._close()

    def retire(self) -> None:
        """Close it, at once or when the last call of it has ended."""
        with self._lock:
            self._is_retired = True
            is_over = not self._call_count
        if is_over:
            self._close()

    def _close(self) -> None:
        close = getattr(self.function, "close", None)
        if not callable(close) or isinstance(self.function, type):
            return
        try:
            with Contained(Exception):
                close()
        except Exception as error:  # broad: it is the function's code, and over
            _log.warning(vocabulary.CLOSE_FAILED, function=self._target, error=describe(error))


# Failures of a function's code: kept from ending more than its call, and put into words.
#
# An error's text is made by the function's code as well: it may fail, and belongs into its thread.

_MAX_CHARS: Final = 20_000
"""Of a text in the log; an error may carry a whole payload."""


class FunctionExited(Exception):
    """The function called `sys.exit`, or raised another error that is meant to end a process; on
    Lambda it does, here it ends the call.
    """


class Contained:
    """Lets these errors pass, and turns all others into FunctionExited.

    Otherwise they end the thread, whose future would never complete, or an event loop.
    """

    def __init__(self, *passing: type[BaseException]) -> None:
        self._passing = passing

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if error is None or isinstance(error, self._passing):
            return
        if isinstance(error, SystemExit):
            raise FunctionExited(f"the function called sys.exit({error.code!r})") from None
        raise FunctionExited(f"the function raised {describe(error)}") from error


def describe(error: BaseException) -> str:
    """Its name and its text, whatever making that text does."""
    try:
        with Contained(Exception):
            return f"{type(error).__name__}: {error}"[:_MAX_CHARS].removesuffix(": ")
    except Exception:  # broad: a function's error may have any `__str__`
        return f"{type(error).__name__}, whose text cannot be made"


def trace_of(error: BaseException) -> str:
    """Its traceback, as Python prints it: no local variables, which hold message bodies."""
    try:
        with Contained(Exception):
            return "".join(traceback.format_exception(error))[-_MAX_CHARS:]
    except Exception:  # broad: a function's error may have any attributes
        return "its traceback cannot be made"


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
