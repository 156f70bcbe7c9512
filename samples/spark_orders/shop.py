"""The shop: its app, which runs on Spark as it would anywhere, and the customers who order."""

import logging
from collections.abc import Iterator
from datetime import timedelta

from handlers import Handler
from pump import App, Backoff, Command, Event, InvalidMessage, Message, Subscription, hybrid

ORDERS, ACCEPTED = "orders", "orders-accepted"
DEAD, INVALID = "orders-dead", "orders-invalid"
app = App("sqs://us-east-1?endpoint=http://127.0.0.1:9324")


class PlaceOrder(Command):
    order_id: int
    item: str
    quantity: int = 1


class OrderAccepted(Event):
    order_id: int
    item: str
    quantity: int


@app.handler
class PlaceOrderHandler(Handler[PlaceOrder]):
    async def handle(self, request: PlaceOrder) -> None:
        if request.quantity < 1:
            raise InvalidMessage(f"order {request.order_id}: quantity must be above zero")
        if request.item == "fog":
            raise ConnectionError(f"order {request.order_id}: nobody has fog in stock")
        if request.item == "parcel" and self.context.attempt == 1:
            raise TimeoutError(f"order {request.order_id}: the warehouse did not answer in time")
        await app.post(OrderAccepted(request.order_id, request.item, request.quantity))


app.route(OrderAccepted, ACCEPTED)
app.subscribe(
    Subscription(
        queue=ORDERS,
        request=PlaceOrder,
        dead_letter_queue=DEAD,
        invalid_queue=INVALID,
        failure=hybrid(max_retries=2, backoff=Backoff(initial=timedelta(seconds=1))),
        wait=timedelta(seconds=1),  # So that the demo ends soon.
    )
)


def quiet() -> None:
    """In a task: no line for every order that fails, as the report will have them."""
    logging.getLogger("pump.delivery").setLevel(logging.CRITICAL)


def some_orders(count: int) -> Iterator[PlaceOrder | Message]:
    """Orders 1 to `count`: most are well; see `fate_of`. Some customers press the button twice."""
    for number in range(1, count + 1):
        match fate_of(number):
            case "malformed":
                yield Message(body=f"order no. {number}, please".encode(), type="PlaceOrder")
            case "invalid":
                yield PlaceOrder(number, "book", quantity=0)
            case "hopeless":
                yield PlaceOrder(number, "fog")
            case "flaky":
                yield PlaceOrder(number, "parcel")
            case _:
                yield from [PlaceOrder(number, "book")] * (2 if number % 50 == 0 else 1)


def fate_of(number: int) -> str:
    """What is to become of an order: of a hundred one is malformed, two are invalid, three are
    hopeless, and ten fail once.
    """
    at = number % 100
    marks = {11: "malformed", 22: "invalid", 72: "invalid"}
    if at in marks:
        return marks[at]
    if at in (33, 63, 93):
        return "hopeless"
    return "flaky" if at % 10 == 7 else "well"
