"""A function's code: found by name, and imported anew when its files have changed.

Files are looked at when the function is about to be called, never in between. What is watched:
the function's module, and the modules of the same package, or of the same folder where it stands
alone, within the project. All of them are imported anew together, so that none keeps a name of
an older one. Code that does not import leaves the old code in place until it changes again.
"""

from __future__ import annotations

import inspect
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from importlib import import_module, invalidate_caches
from importlib.util import cache_from_source
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from pump.errors import ConfigurationError
from pump.gateway_url import OUR_PACKAGES
from pump.observability import vocabulary
from pump.observability.log import get_logger

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
