"""Orders on Lambda: a queue invokes a function, which answers for each message.

Run it:   python -m samples.orders_on_lambda
          (without an account: with event.json, which asks nothing of SQS)
On AWS:   template.yaml deploys it, as `function.lambda_handler`; docs/lambda.md has the rest
Expect:   ada: order 1 placed
          bob: order 2 placed
          {"batchItemFailures": []}
"""

from handlers import Handler
from pump import App, Command, InvalidMessage, Subscription, hybrid

app = App("sqs://eu-west-1")


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
        queue="orders",
        request=PlaceOrder,
        dead_letter_queue="orders-dead",
        invalid_queue="orders-invalid",
        failure=hybrid(max_retries=4),
        make_channels="assume",  # The template makes the queues; a cold start asks for nothing.
    )
)

lambda_handler = app.lambda_handler()
