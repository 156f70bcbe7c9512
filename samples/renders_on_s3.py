"""Renders on S3: jobs for machines that share nothing but a bucket.

Run it:   python -m samples.renders_on_s3
          pump run samples.renders_on_s3:app --until-empty
          (the studio, which asks for frames; then a machine, which renders them)
On S3:    python -m samples.renders_on_s3 's3://my-bucket/farm?region=eu-west-1'
          pump run samples.renders_on_s3:app --gateway 's3://my-bucket/farm?region=eu-west-1'
          (on as many machines as there are; &layout=log is for very many small jobs)
Expect:   dawn: frame 1 rendered
          dawn: frame 2 rendered, at the second try
          dusk: frame 1 rendered
          (frame 0 of dusk does not exist and is in the queue renders-dead)
"""

import asyncio
import sys
from datetime import timedelta

from pump import App, Command, RejectMessage, Subscription, current_context, hybrid

app = App("local://.pumphouse/renders")


class Render(Command):
    scene: str
    frame: int


@app.handler
async def render(request: Render) -> None:
    context = current_context()
    attempt = 1 if context is None else context.attempt
    if request.frame == 0:
        raise RejectMessage("frames are counted from 1")
    if (request.scene, request.frame, attempt) == ("dawn", 2, 1):
        raise MemoryError("this machine is too small")
    retried = ", at the second try" if attempt == 2 else ""
    print(f"{request.scene}: frame {request.frame} rendered{retried}", flush=True)


app.subscribe(
    Subscription(
        queue="renders",
        request=Render,
        dead_letter_queue="renders-dead",
        failure=hybrid(max_retries=3),
        max_receive_count=20,  # For what kills its process each time.
        concurrency=2,
        lease=timedelta(minutes=1),  # A machine that dies keeps its frames for as long as this.
        on_routing_failure="keep",
    )
)


async def studio(gateway: str | None = None) -> None:
    app.override(gateway=gateway)
    async with app:
        await app.post_all([Render("dawn", 1), Render("dawn", 2), Render("dusk", 1)])
        await app.post(Render("dusk", 0))


if __name__ == "__main__":
    asyncio.run(studio(*sys.argv[1:]))
