"""Worker: one of several processes that run the same app, as it is on the inside.

A supervisor starts it and sends it what to run. It runs that as `pump run` would; but it
answers for itself over the IPC channel only, and drains when the supervisor has gone.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Final, NoReturn

import attrs

from ..app import App
from ..dispatcher import Dispatcher
from ..exit_codes import ExitCode, Failure, exit_code_of
from ..health.control import Control, log_failure, probes_of
from ..health.options import HealthOptions
from ..health.probes import Probes
from ..http.server import answer_safely
from ..http.wire import Answer, Request
from ..observability import vocabulary
from ..observability.log import get_logger
from ..observability.telemetry import TextMetrics
from ..performer import Performer
from ..processes.ipc import (
    ATTACHED,
    DRAIN,
    ENDED,
    SERVING,
    STOP,
    IpcChannel,
    Said,
    WorkerStart,
    answer_said,
    hear_at_once,
    obey,
    request_heard,
)
from .console import complain
from .run import exit_code_of_run, loaded_app, pump_and_report, run_to_the_end
from .run_report import RunReport, counts_of, report_in
from .session import set_up_logging

_log = get_logger("pump.run")
_LIMITS = HealthOptions(port=0)
"""What counts as ill; nothing listens."""
_PROBED = ("livez", "readyz", "health", "metrics")


def main() -> NoReturn:
    """Run what the supervisor at the other end of the named file descriptor says."""
    # A signal to a whole unit is for the supervisor. Not SIG_IGN, which what a handler starts
    # would inherit.
    signal.signal(signal.SIGHUP, _leave_to_the_supervisor)
    end = socket.socket(fileno=int(sys.argv[1]))
    # What a handler starts must not hold it.
    end.set_inheritable(False)
    said = hear_at_once(end)
    if said is None:
        sys.exit(ExitCode.OK)
    watchdog = ParentWatchdog(end)
    watchdog.watch(_give_up)
    worker_start = WorkerStart.of(said)
    sys.argv = ["pump", *worker_start.options.arguments()]
    try:
        code = run_worker(worker_start, watchdog)
    except KeyboardInterrupt:
        code = ExitCode.FORCED
    except Exception as error:  # broad: whatever it is, it ends as an exit code
        complain(error)
        code = exit_code_of(error)
    sys.exit(code)


def _leave_to_the_supervisor(number: int, frame: FrameType | None) -> None:
    """It restarts its processes one after the other, and drains them when its terminal is lost."""


def _give_up() -> None:
    # Nothing can be drained: the event loop does not turn.
    os._exit(ExitCode.UNEXPECTED)


def run_worker(worker_start: WorkerStart, watchdog: ParentWatchdog) -> ExitCode:
    """Load, check and run the app; its errors are the caller's to turn into words."""
    options = worker_start.options
    format = set_up_logging(
        options.log_level,
        options.log_format,
        sample=options.log_sample,
        process=worker_start.number,
    )
    report = WorkerReport(report_in(format) if worker_start.announces_start else None)
    app = loaded_app(options, report, serves_metrics=False)
    require_shared(app)
    return run_to_the_end(_serve(app, worker_start, watchdog, report))


def require_shared(app: App) -> None:
    """Raise unless other processes can reach the app's queues."""
    if not app.built_gateway().capabilities.is_shared:
        raise Failure(
            f"--processes: the queues of {app.gateway_name} are in one process only",
            remedy="leave --processes out, or name a gateway that processes share: "
            "--gateway local://",
        )


async def _serve(
    app: App, worker_start: WorkerStart, watchdog: ParentWatchdog, report: WorkerReport
) -> ExitCode:
    listener = OrderListener(await IpcChannel.over(watchdog.end), watchdog)
    listening = asyncio.create_task(listener.listen(), name="ipc channel")
    async with app:
        dispatcher = app.dispatcher()
        obey(worker_start.desired, dispatcher)
        await listener.open(dispatcher, gateway=app.gateway_name)
        try:
            await pump_and_report(app, dispatcher, worker_start.options, report)
        finally:
            await listener.say_what_was_done(app, report.performers)
    listening.cancel()
    return exit_code_of_run(dispatcher)


class WorkerReport:
    """Leaves reporting to the supervisor; only the first worker announces the start."""

    def __init__(self, report: RunReport | None) -> None:
        self._report = report
        self.performers: Sequence[Performer] = ()

    def warn(self, message: str) -> None:
        if self._report is not None:
            self._report.warn(message)

    def started(self, app: App, target: str) -> None:
        if self._report is not None:
            self._report.started(app, target)

    def ended(self, app: App, performers: Sequence[Performer], run_s: float) -> None:
        self.performers = performers


class OrderListener:
    """Receives the supervisor's messages.

    Before there is a dispatcher nothing is in flight: an order to end is carried out as SIGTERM
    would, and requests wait.
    """

    def __init__(self, channel: IpcChannel, watchdog: ParentWatchdog) -> None:
        self._channel = channel
        self._watchdog = watchdog
        self._dispatcher: Dispatcher | None = None
        self._probes: Probes | None = None
        self._control: Control | None = None
        self._waiting: list[Said] = []

    async def listen(self) -> None:
        """Do what is said, until the supervisor has gone."""
        self._channel.say({"event": ATTACHED})
        while (said := await self._channel.hear()) is not None:
            await self._do(said)
        self._watchdog.is_heard.set()
        _log.warning(vocabulary.SUPERVISOR_LOST)
        self._drain()

    async def open(self, dispatcher: Dispatcher, *, gateway: str) -> None:
        """Answer for this dispatcher from now on."""
        probes = await probes_of(dispatcher, _LIMITS, gateway=gateway)
        control = Control(dispatcher, probes, dispatcher.runtime.clock)
        self._dispatcher, self._probes, self._control = dispatcher, probes, control
        self._channel.say({"event": SERVING})
        waiting, self._waiting = self._waiting, []
        for said in waiting:
            await self._do(said)

    async def say_what_was_done(self, app: App, performers: Sequence[Performer]) -> None:
        """The last word, for the sums."""
        telemetry: object = app.telemetry
        text = telemetry.prometheus_text() if isinstance(telemetry, TextMetrics) else b""
        self._channel.say(
            {
                "event": ENDED,
                "counts": {each.subscription.name: counts_of(each.stats) for each in performers},
                "discarded": app.counters.value(vocabulary.DISCARDED),
                "spilled": app.counters.value(vocabulary.SPILLED),
                "metrics": text.decode("utf-8", "replace"),
            }
        )
        await self._channel.flush()

    async def _do(self, said: Said) -> None:
        match said:
            case {"order": order} if order == DRAIN:
                self._drain()
            case {"order": order} if order == STOP:
                self._stop()
            case _ if self._dispatcher is None:
                self._waiting.append(said)
            case {"id": int(id)}:
                answer = await answer_safely(self._answer, request_heard(said), log_failure)
                self._channel.say(answer_said(id, answer))

    def _answer(self, request: Request) -> Answer:
        assert self._probes is not None
        assert self._control is not None
        if request.path[0] in _PROBED:
            return self._probes.answer(request)
        return self._control.answer(request)

    def _drain(self) -> None:
        if self._dispatcher is None:
            signal.raise_signal(signal.SIGTERM)
        else:
            self._dispatcher.drain()

    def _stop(self) -> None:
        if self._dispatcher is None:
            signal.raise_signal(signal.SIGTERM)
        else:
            self._dispatcher.stop_now()


# Parent watchdog: a worker does not outlive its supervisor, not even when its event loop is stuck.
#
# The listener on the event loop drains when the supervisor has gone. A loop that a handler
# blocks, or an import that never ends, hears nothing; so a thread watches, too.

DEAF_S: Final = 60.0
"""How long the event loop may take to hear that the supervisor has gone. Leases are not renewed
meanwhile: what it has in flight comes again elsewhere."""


@attrs.frozen(eq=False)
class ParentWatchdog:
    """Our end of the channel, and whether the loop has noticed that the other end has gone."""

    end: socket.socket
    is_heard: threading.Event = attrs.field(factory=threading.Event)

    def watch(self, give_up: Callable[[], object], *, deaf_s: float = DEAF_S) -> None:
        """Have a thread call `give_up` when the other end has gone and the loop does not notice."""
        # A copy, for the loop closes its own.
        watched = os.dup(self.end.fileno())
        threading.Thread(
            target=self._wait, args=(watched, give_up, deaf_s), name="parent watchdog", daemon=True
        ).start()

    def _wait(self, watched: int, give_up: Callable[[], object], deaf_s: float) -> None:
        poll = select.poll()
        # For nothing but the end, which is always told: what is said is for the loop to read.
        poll.register(watched, 0)
        while not poll.poll():
            continue
        os.close(watched)
        if not self.is_heard.wait(deaf_s):
            give_up()
