"""The app that is measured on S3: one command, a handler that does nothing, default settings."""

from __future__ import annotations

from datetime import timedelta

from pump import App, Command, Subscription
from pump.stores.spill import MemorySpill

from .rig import BUCKET, REGION

QUEUE = "ticks"


class Tick(Command):
    """What is sent."""

    number: int


async def tick(request: Tick) -> None:
    pass


def make_app(endpoint: str, layout: str, consumers: int = 1) -> App:
    """One subscription; `consumers` of its handlers may run at once."""
    url = f"s3://{BUCKET}?endpoint={endpoint}&region={REGION}&layout={layout}"
    # A benchmark leaves no data folder behind.
    app = App(url, spill=MemorySpill())
    app.register(Tick, tick)
    app.subscribe(
        Subscription(
            queue=QUEUE,
            request=Tick,
            concurrency=consumers,
            wait=timedelta(seconds=2),
        )
    )
    return app
