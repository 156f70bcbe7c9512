"""Demo: an order desk on the embedded queue, with everything that can happen to a message.

Run it:   make demo   (or: python -m samples.demo)
Expect:   a line for each message as it is handled, retried or rejected, then two tables:
          what became of the messages, and what is in each queue.
"""

import asyncio
import tempfile
from datetime import timedelta

from rich.console import Console
from rich.table import Table

from handlers import Handler
from pump import (
    App,
    Backoff,
    Command,
    InvalidMessage,
    Message,
    OutcomeEvent,
    RejectMessage,
    Status,
    Subscription,
    hybrid,
)
from pump.dispatcher import Dispatcher
from pump.events import Event

console = Console()
COLOURS = {Status.PROCESSED: "green", Status.RETRYING: "yellow", Status.DEAD_LETTERED: "red"}


class PlaceOrder(Command):
    order_id: int
    item: str
    quantity: int = 1


class PlaceOrderHandler(Handler[PlaceOrder]):
    async def handle(self, request: PlaceOrder) -> None:
        if request.quantity < 1:
            raise InvalidMessage(f"order {request.order_id}: quantity must be above zero")
        if request.item == "unobtainium":
            raise RejectMessage(f"order {request.order_id}: nobody sells unobtainium")
        if request.item == "flaky" and self.context.attempt < 3:
            raise ConnectionError("the warehouse does not answer")
        if request.item == "hopeless":
            raise ConnectionError("the warehouse never answers")


def tell(event: Event) -> None:
    if isinstance(event, OutcomeEvent):
        where = f" → {event.destination}" if event.destination else ""
        colour = COLOURS[event.status]
        console.print(
            f"  [{colour}]{event.status.value:<13}[/] attempt {event.attempt}{where}"
            f"  [dim]{event.detail}[/]"
        )


def build(data: str) -> App:
    app = App(f"local://{data}", observers=[tell], spill=f"{data}/spill.db")
    app.register(PlaceOrder, PlaceOrderHandler)
    app.subscribe(
        Subscription(
            queue="orders",
            request=PlaceOrder,
            dead_letter_queue="orders-dead",
            invalid_queue="orders-invalid",
            failure=hybrid(max_retries=2, backoff=Backoff(initial=timedelta(milliseconds=200))),
        )
    )
    return app


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="pump-demo-") as data:
        app = build(data)
        async with app, app.pumping() as dispatcher:
            console.print("[bold]sending 12 messages to the queue 'orders'[/]")
            await app.post_all([PlaceOrder(n, "book") for n in range(1, 8)])
            await app.post(PlaceOrder(8, "flaky"))
            await app.post(PlaceOrder(9, "hopeless"))
            await app.post(PlaceOrder(10, "unobtainium"))
            await app.post(PlaceOrder(11, "book", quantity=0))
            await app.post(Message(body=b"this is not an order"), queue="orders")
            await dispatcher.wait_until_empty()
            await summarise(app, dispatcher)


async def summarise(app: App, dispatcher: Dispatcher) -> None:
    [performer] = dispatcher.performers
    outcomes = Table(title="what became of them", title_justify="left")
    for name in ("received", "processed", "retried", "dead-lettered", "invalid"):
        outcomes.add_column(name, justify="right")
    stats = performer.stats
    outcomes.add_row(
        *map(
            str,
            (stats.received, stats.processed, stats.retried, stats.dead_lettered, stats.invalid),
        )
    )
    queues = Table("queue", "messages", "why", title="what is where", title_justify="left")
    for each in await app.admin.queues():
        reasons = {
            f"{message.headers['rejectionReason']}: {message.headers['rejectionMessage']}"
            for message in await app.admin.peek(each.name)
            if "rejectionReason" in message.headers
        }
        queues.add_row(each.name, str(each.visible + each.in_flight), "\n".join(sorted(reasons)))
    console.print(outcomes, queues)


if __name__ == "__main__":
    asyncio.run(main())
