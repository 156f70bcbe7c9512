"""Middleware: several handlers of one event, each with its own policy, and one for all.

Run it:   python -m samples.middleware
Expect:   [timed] reserve_stock
          [timed] send_receipt (after 2 failures)
          [timed] notify_partner (fell back to e-mail)
"""

import asyncio
from datetime import timedelta
from typing import Any

from handlers import Fallback, Retry, Timeout, use
from pump import App, Backoff, Context, Event, Subscription
from pump.pipeline import Proceed

notes: dict[str, str] = {}


async def timed(request: Any, context: Context, proceed: Proceed) -> None:
    await proceed(request)
    name = context.handler.rpartition(".")[2]
    print(f"[timed] {name}{notes.get(name, '')}")


app = App("memory://", middleware=[timed])
failures = iter(range(2))


class OrderPlaced(Event):
    order_id: int


@app.handler
async def reserve_stock(event: OrderPlaced) -> None: ...


@app.handler
@use(Retry(max_attempts=3, backoff=Backoff(initial=timedelta(milliseconds=10))))
async def send_receipt(event: OrderPlaced) -> None:
    if next(failures, None) is not None:
        notes["send_receipt"] = " (after 2 failures)"
        raise ConnectionError("mail server is busy")


async def by_email(event: OrderPlaced) -> None:
    notes["notify_partner"] = " (fell back to e-mail)"


@app.handler
@use(Fallback(by_email), Timeout(timedelta(milliseconds=50)))
async def notify_partner(event: OrderPlaced) -> None:
    await asyncio.sleep(60)


app.subscribe(Subscription(queue="order-events", request=OrderPlaced, dead_letter_queue="dead"))


async def main() -> None:
    async with app, app.pumping() as dispatcher:
        await app.post(OrderPlaced(1))
        await dispatcher.wait_until_empty()


if __name__ == "__main__":
    asyncio.run(main())
