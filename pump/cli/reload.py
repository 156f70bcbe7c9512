"""Reload: the app in a process of its own, drained and started anew when its code changes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

import attrs

from ..exit_codes import ExitCode, Failure
from ..processes.ipc import RunOptions
from ..processes.worker_process import boot_command
from .console import print_warning, stderr
from .settings import EnvironmentSettings

_TOLD_TO_END = (ExitCode.OK, ExitCode.FORCED)
_MAX_NAMED = 3


def run_and_reload(options: RunOptions) -> ExitCode:
    """Run the app, and again after each change, until a signal; its last exit code is ours."""
    try:
        import watchfiles  # noqa: F401
    except ImportError:
        raise Failure(
            "--reload needs the package watchfiles", remedy="pip install 'pumphouse[reload]'"
        ) from None
    return asyncio.run(_Reloader(options).run())


class _Reloader:
    """Keeps one child. Waiting for a change, it ends at a signal; so does a child told to end.

    Signals are passed on: the first drains the child, unless a change drains it already, and
    the second stops it.
    """

    def __init__(self, options: RunOptions) -> None:
        self._options = options
        self._child: asyncio.subprocess.Process | None = None
        self._is_draining = False
        self._end_asked = asyncio.Event()

    async def run(self) -> ExitCode:
        with _on_signals(self._end):
            async with aclosing(_changes()) as changes:
                while True:
                    # Watching begins before the child does, so that no change is missed.
                    change = asyncio.ensure_future(anext(changes))
                    await asyncio.wait([change], timeout=0)
                    code = await self._run_child_until(change)
                    if not change.done():
                        await self._wait_for(change, code)
                    if not change.done() or self._end_asked.is_set():
                        change.cancel()
                        await asyncio.wait([change])
                        return _as_exit_code(code)
                    stderr().print(f"reloading: {change.result()} changed", soft_wrap=True)

    async def _run_child_until(self, change: asyncio.Future[str]) -> int:
        child = self._child = await self._start_child()
        self._is_draining = False
        if self._end_asked.is_set():
            self._drain()  # Told while there was no child to pass it on to.
        try:
            ended = asyncio.ensure_future(child.wait())
            await _first_of(ended, change)
            self._drain()
            return await ended
        finally:
            if child.returncode is None:
                child.kill()

    async def _start_child(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *boot_command("pump.cli"),
            *_shown(self._options).arguments(),
            stdin=asyncio.subprocess.DEVNULL,
            # Ctrl-C on a terminal must reach the child through us, once.
            start_new_session=True,
        )

    async def _wait_for(self, change: asyncio.Future[str], code: int) -> None:
        """After a child that failed, wait for a change that may help, or for a signal."""
        if code in _TOLD_TO_END or self._end_asked.is_set():
            return
        print_warning(f"the app ended with exit code {code}; waiting for a change")
        end = asyncio.ensure_future(self._end_asked.wait())
        await _first_of(end, change)
        end.cancel()

    def _end(self) -> None:
        if self._end_asked.is_set():
            self._terminate()
        self._end_asked.set()
        self._drain()

    def _drain(self) -> None:
        if not self._is_draining:
            self._is_draining = True
            self._terminate()

    def _terminate(self) -> None:
        if self._child is not None and self._child.returncode is None:
            self._child.terminate()


def _shown(options: RunOptions) -> RunOptions:
    """Without what the child finds in its environment: a gateway's URL may hold a password, and
    any user can read a command line.
    """
    is_known = options.gateway == EnvironmentSettings.from_environment().gateway
    return attrs.evolve(options, gateway=None) if is_known else options


async def _first_of(*futures: asyncio.Future[Any]) -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


async def _changes() -> AsyncGenerator[str, None]:
    from watchfiles import PythonFilter, awatch

    folder = Path.cwd()
    async for batch in awatch(folder, watch_filter=PythonFilter()):
        names = sorted({Path(path).relative_to(folder).as_posix() for _, path in batch})
        more = ", …" if len(names) > _MAX_NAMED else ""
        yield ", ".join(names[:_MAX_NAMED]) + more


@contextmanager
def _on_signals(call: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    # SIGHUP: the child has a session of its own, and would outlive the terminal.
    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    for each in signals:
        loop.add_signal_handler(each, call)
    try:
        yield
    finally:
        for each in signals:
            loop.remove_signal_handler(each)


def _as_exit_code(code: int) -> ExitCode:
    if code == -signal.SIGTERM:
        return ExitCode.OK  # Told to drain before it had anything in flight.
    return ExitCode(code) if code in set(ExitCode) else ExitCode.UNEXPECTED
