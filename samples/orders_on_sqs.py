"""Orders on SQS: one service, on the embedded queue at your desk and on SQS in production.

Run it:   python -m samples.orders_on_sqs
          pump run samples.orders_on_sqs:app --until-empty
          (the shop, which places orders; then the service, which takes them)
On SQS:   python -m samples.orders_on_sqs sqs://eu-west-1
          pump run samples.orders_on_sqs:app --gateway sqs://eu-west-1
          (credentials come from the environment; docs/deploying-on-sqs.md has the rest)
Expect:   ada: order 1 placed
          ada: order 2 placed
          bob: order 3 placed
          (order 4 has no quantity and is in the queue orders-invalid.fifo)
"""

import asyncio
import sys
from datetime import timedelta

from handlers import Handler
from pump import App, Command, InvalidMessage, Subscription, hybrid

app = App("local://.pumphouse/orders")


class PlaceOrder(Command):
    customer: str
    number: int
    quantity: int = 1


@app.handler
class PlaceOrderHandler(Handler[PlaceOrder]):
    async def handle(self, request: PlaceOrder) -> None:
        if request.quantity < 1:
            raise InvalidMessage("quantity must be above zero")
        print(f"{request.customer}: order {request.number} placed", flush=True)


app.subscribe(
    Subscription(
        queue="orders.fifo",  # The ending makes it a FIFO queue on SQS.
        request=PlaceOrder,
        dead_letter_queue="orders-dead.fifo",
        invalid_queue="orders-invalid.fifo",
        failure=hybrid(max_retries=4),
        max_receive_count=20,  # For what kills its process each time; well above the retries.
        lease=timedelta(minutes=1),
        on_routing_failure="keep",  # A container's disk, the other choice, goes with it.
    )
)


async def shop(gateway: str | None = None) -> None:
    app.override(gateway=gateway)
    async with app:
        # A customer's orders are handled in order, those of several customers side by side.
        await app.post(PlaceOrder("ada", 1), group="ada")
        await app.post(PlaceOrder("ada", 2), group="ada")
        await app.post(PlaceOrder("bob", 3), group="bob")
        await app.post(PlaceOrder("bob", 4, quantity=0), group="bob")


if __name__ == "__main__":
    asyncio.run(shop(*sys.argv[1:]))
