"""`pump relay`: what sends from an app's outbox, without its pumps."""

from __future__ import annotations

import asyncio

import click

from ..app import App
from ..event_loop import on_signal
from ..exit_codes import ExitCode
from ..observability import vocabulary
from ..observability.log import get_logger
from ..outbox import Outbox
from ..processes.ipc import RunOptions
from .options import (
    gateway_option,
    log_format_option,
    log_level_option,
    telemetry_option,
)
from .outbox import required_outbox

_log = get_logger("pump.outbox")


@click.command(short_help="Send what waits in an app's outbox.")
@click.argument("target", metavar="MODULE:APP")
@gateway_option
@telemetry_option
@log_level_option
@log_format_option
def relay(
    target: str,
    *,
    gateway: str | None,
    telemetry: tuple[str, ...],
    log_level: str,
    log_format: str,
) -> ExitCode:
    """Send what is committed to the outbox of the app that MODULE:APP names, until it is told to
    stop.

    Every `pump run` does this too; any number of both may run beside each other. The first SIGTERM
    or Ctrl-C lets sends that are under way end, the second one stops at once: what was being sent
    is then sent again.

    \b
    Examples:
      pump relay shop:app
      pump relay shop:app --gateway sqs:// --telemetry prometheus:9464
    """
    from .run import loaded_app, run_to_the_end
    from .run_report import report_in
    from .session import set_up_logging

    format = set_up_logging(log_level, log_format)
    options = RunOptions(target=target, gateway=gateway, telemetry=telemetry)
    app = loaded_app(options, report_in(format))
    return run_to_the_end(_relay(app, required_outbox(app)))


async def _relay(app: App, outbox: Outbox) -> ExitCode:
    async with app:
        relay = app.relay()
        running = asyncio.create_task(relay.run(), name="relay")
        was_asked = False

        def end() -> None:
            nonlocal was_asked
            if was_asked:
                running.cancel()
            was_asked = True
            relay.drain()

        with on_signal(end):
            _log.info(vocabulary.RELAY_STARTED, outbox=outbox.name, gateway=app.gateway_name)
            await asyncio.wait([running])
    _log.info(
        vocabulary.RELAY_ENDED,
        relayed=app.counters.value(vocabulary.OUTBOX_RELAYED),
        set_aside=app.counters.value(vocabulary.OUTBOX_SET_ASIDE),
    )
    if running.cancelled():
        return ExitCode.FORCED
    running.result()
    return ExitCode.OK
