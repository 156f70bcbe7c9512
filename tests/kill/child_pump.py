"""The child of the kill tests: an app that says on its standard output what it does.

python -m tests.kill.child_pump FOLDER PAUSE_MS
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from pump import App, Command, Subscription, current_context


class Job(Command):
    number: int


def build(folder: Path) -> App:
    """The app that both sides of the test share."""
    app = App(f"local://{folder}", spill=folder / "spill.db")
    app.subscribe(
        Subscription(
            queue="jobs", request=Job, dead_letter_queue="dead", concurrency=10, prefetch=10
        )
    )
    return app


def say(word: str, number: int) -> None:
    """One line in one write, so that a kill cannot tear it and the pipe keeps it."""
    context = current_context()
    attempt = 0 if context is None else context.attempt
    os.write(1, f"{word} {number} {attempt}\n".encode())


def main() -> None:
    """Pump until a signal."""
    app = build(Path(sys.argv[1]))
    pause_s = float(sys.argv[2]) / 1000

    @app.handler
    async def handle(job: Job) -> None:
        say("start", job.number)
        if pause_s:
            await asyncio.sleep(pause_s)
        say("end", job.number)

    app.run()


if __name__ == "__main__":
    main()
