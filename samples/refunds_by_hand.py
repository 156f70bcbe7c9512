"""Refunds by hand: no pump and no event loop, a plain loop that receives and settles.

Run it:   python -m samples.refunds_by_hand
Expect:   refunded order-1: 20 EUR, attempt 1
          order-2: rejected, routed to refunds-dead
          order-3: put off, the bank is closed
          refunded order-3: 30 EUR, attempt 2
          not a refund: rejected, routed to refunds-invalid
          refunds-dead: order-2, because DeliveryError: over the limit
"""

from datetime import timedelta

from pump import App, Command, Delivery, Message, RejectionReason, Subscription
from pump.blocking import BlockingApp, BlockingConsumer
from pump.errors import MappingError


class Refund(Command):
    order: str
    amount: int


app = App("memory://")
refunds = Subscription(
    queue="refunds",
    request=Refund,
    dead_letter_queue="refunds-dead",
    invalid_queue="refunds-invalid",
)


def settle(consumer: BlockingConsumer, delivery: Delivery) -> None:
    try:
        refund = consumer.read(delivery)
    except MappingError as error:
        routed = consumer.reject(delivery, RejectionReason.UNACCEPTABLE, str(error))
        print(f"not a refund: rejected, {routed.fate} to {routed.destination}")
        return
    if refund.amount > 100:
        routed = consumer.reject(delivery, detail="over the limit")
        print(f"{refund.order}: rejected, {routed.fate} to {routed.destination}")
    elif refund.order == "order-3" and delivery.attempt == 1:
        consumer.defer(delivery, timedelta(milliseconds=50))
        print(f"{refund.order}: put off, the bank is closed")
    else:
        consumer.ack(delivery)
        print(f"refunded {refund.order}: {refund.amount} EUR, attempt {delivery.attempt}")


if __name__ == "__main__":
    with BlockingApp(app) as blocking, blocking.consumer(refunds) as consumer:
        for order, amount in (("order-1", 20), ("order-2", 500), ("order-3", 30)):
            blocking.post(Refund(order, amount), queue="refunds")
        blocking.post(Message(body=b"hello"), queue="refunds")
        for delivery in consumer.deliveries(idle=timedelta(seconds=1)):
            settle(consumer, delivery)
        with blocking.consumer(Subscription(queue="refunds-dead", request=Refund)) as dead:
            [letter] = dead.receive()
            headers = letter.message.headers
            why = f"{headers['rejectionReason']}: {headers['rejectionMessage']}"
            print(f"refunds-dead: {dead.read(letter).order}, because {why}")
            dead.ack(letter)
