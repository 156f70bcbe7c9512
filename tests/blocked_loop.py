"""What raises where our code blocks an event loop: in tests, and where saboteurs are recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from blockbuster import blockbuster_ctx


@contextmanager
def blocking_raises() -> Iterator[None]:
    """A blocking call below our code, on the event loop's thread, raises BlockingError.

    Tests may block: only calls with one of our packages on the stack are looked at.
    """
    with blockbuster_ctx(
        ["pump", "gateways", "handlers"],
        # These run before or after a loop's work, or are the command line's own business.
        excluded_modules=["pump.cli", "pump.event_loop", "pump.testing"],
    ) as detector:
        # A lock is not a wait unless it is contended, and an executor's queue never is for long.
        for name in [name for name in detector.functions if "Lock" in name or "lock" in name]:
            detector.functions[name].deactivate()
        for function in detector.functions.values():
            # A renderer that reads source files to print a traceback is the application's choice.
            function.can_block_in("structlog/_base.py", {"_proxy_to_logger"})
        # Opening an app finds and imports its gateway: before any message, and once.
        for function in detector.functions.values():
            function.can_block_in("pump/gateway_url.py", "gateway_from_url")
            # asyncpg looks for certificates when it connects; the driver is the application's.
            function.can_block_in("asyncpg/connect_utils.py", {"_parse_connect_dsn_and_args"})
        yield
