"""The child of the kill tests: an app that says on its standard output what it does.

python -m tests.kill.child_pump FOLDER PAUSE_MS MODE

MODE is `work`, `reject` (every job, to the queue `dead`) or `spill` (every job, to a queue that
does not exist); with `-and-die` behind it the process kills itself in the moment between the
routed copy and the ack of the original.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from pump import App, Command, RejectMessage, Subscription, current_context
from pump.loop.settler import Settler

MISSING = "missing"


class Job(Command):
    number: int


def build(folder: Path, mode: str = "work") -> App:
    """The app that both sides of the test share."""
    spills = mode.startswith("spill")
    app = App(f"local://{folder}", spill=folder / "spill.db")
    app.subscribe(
        Subscription(
            queue="jobs",
            request=Job,
            dead_letter_queue=MISSING if spills else "dead",
            make_channels="assume" if spills else "create",
            concurrency=10,
            prefetch=10,
        )
    )
    return app


def say(word: str, number: int) -> None:
    """One line in one write, so that a kill cannot tear it and the pipe keeps it."""
    context = current_context()
    attempt = 0 if context is None else context.attempt
    os.write(1, f"{word} {number} {attempt}\n".encode())


async def die_instead(self: Settler, batch: Any) -> None:
    """The copy is durable, the original not yet removed: the worst moment to go."""
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Pump until a signal; when rejecting, until the queue is empty."""
    folder, pause_ms, mode = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    app = build(folder, mode)
    if mode.endswith("-and-die"):
        Settler._settle = die_instead  # type: ignore[method-assign]

    @app.handler
    async def handle(job: Job) -> None:
        say("start", job.number)
        if not mode.startswith("work"):
            raise RejectMessage("told to")
        if pause_ms:
            await asyncio.sleep(pause_ms / 1000)
        say("end", job.number)

    app.run(until_empty=mode != "work")


if __name__ == "__main__":
    main()
