"""Orders: what a handler can say about its message — later, never, and not a message at all.

Run it:   python -m samples.orders
Expect:   order 1 (attempt 1): out of stock, later
          order 1 (attempt 2): shipped
          order 2 (attempt 1): address unknown, never
          orders-dead: DeliveryError: no such address
          orders-invalid: Unacceptable: quantity must be above zero
"""

import asyncio
from datetime import timedelta

from handlers import Handler
from pump import App, Command, DeferMessage, InvalidMessage, RejectMessage, Subscription, headers

app = App("memory://")


class PlaceOrder(Command):
    order_id: int
    quantity: int = 1
    address: str = "Main Street 1"


@app.handler
class PlaceOrderHandler(Handler[PlaceOrder]):
    async def handle(self, request: PlaceOrder) -> None:
        attempt = self.context.attempt
        if request.quantity < 1:
            raise InvalidMessage("quantity must be above zero")
        if not request.address:
            print(f"order {request.order_id} (attempt {attempt}): address unknown, never")
            raise RejectMessage("no such address")
        if attempt == 1:
            print(f"order {request.order_id} (attempt {attempt}): out of stock, later")
            raise DeferMessage(timedelta(milliseconds=200))
        print(f"order {request.order_id} (attempt {attempt}): shipped")


app.subscribe(
    Subscription(
        queue="orders",
        request=PlaceOrder,
        dead_letter_queue="orders-dead",
        invalid_queue="orders-invalid",
    )
)


async def main() -> None:
    async with app, app.pumping() as dispatcher:
        await app.post(PlaceOrder(1))
        await app.post(PlaceOrder(2, address=""))
        await app.post(PlaceOrder(3, quantity=0))
        await dispatcher.wait_until_empty()
        for queue in ("orders-dead", "orders-invalid"):
            for message in await app.admin.peek(queue):
                reason = message.headers[headers.REJECTION_REASON]
                print(f"{queue}: {reason}: {message.headers[headers.REJECTION_DETAIL]}")


if __name__ == "__main__":
    asyncio.run(main())
