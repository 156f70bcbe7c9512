"""The child of the kill tests: an app on SQS that says on its standard output what it does.

python -m tests.gateways.sqs.broker.child_sqs URL QUEUE DEAD LEASE_S PAUSE_MS MODE

Credentials come from the environment. Every twentieth job is rejected. MODE is `work`, `empty`
(until the queue is), or `die`: the process kills itself between the routed copy of a rejected job
and the delete of the original.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from pump import App, Command, RejectMessage, Subscription, current_context
from pump.loop.settler import Settler

REJECTED_EVERY = 20


class Job(Command):
    number: int


def build(url: str, queue: str, dead: str, lease_s: float, folder: Path) -> App:
    """The app that both sides of the test share."""
    app = App(url, spill=folder / "spill.db")
    app.subscribe(
        Subscription(
            queue=queue,
            request=Job,
            dead_letter_queue=dead,
            concurrency=10,
            lease=timedelta(seconds=lease_s),
            wait=timedelta(seconds=2),
        )
    )
    return app


def say(word: str, number: int) -> None:
    """One line in one write, so that a kill cannot tear it and the pipe keeps it."""
    context = current_context()
    attempt = 0 if context is None else context.attempt
    os.write(1, f"{word} {number} {attempt}\n".encode())


async def die_instead(self: Settler, batch: Any) -> None:
    """The copy is in its queue, the original not yet deleted: the worst moment to go."""
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Pump until a signal, or until the queue is empty."""
    url, queue, dead, lease_s, pause_ms, mode = sys.argv[1:]
    app = build(url, queue, dead, float(lease_s), Path.cwd())
    if mode == "die":
        Settler._settle = die_instead  # type: ignore[method-assign]

    @app.handler
    async def handle(job: Job) -> None:
        say("start", job.number)
        if job.number % REJECTED_EVERY == 0:
            raise RejectMessage("told to")
        if pause_ms:
            await asyncio.sleep(float(pause_ms) / 1000)
        say("end", job.number)

    app.run(until_empty=mode == "empty")


if __name__ == "__main__":
    main()
