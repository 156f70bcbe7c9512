"""Invoices on Service Bus: printed once, put off while the printer is busy, and none is lost.

Run it:   python -m samples.invoices_on_servicebus
          pump run samples.invoices_on_servicebus:app --until-empty
On Azure: python -m samples.invoices_on_servicebus sb://shop.servicebus.windows.net
          pump run samples.invoices_on_servicebus:app --gateway sb://shop.servicebus.windows.net
Expect:   ada: invoice 1 has to wait
          ada: invoice 1 printed
          bob: invoice 2 printed
          (invoice 3 asks for less than nothing and is in the queue invoices-invalid)
"""

import asyncio
import sys
from datetime import timedelta

from handlers import Handler
from pump import App, Command, DeferMessage, InvalidMessage, Subscription, hybrid
from pump.context import current_context

app = App("local://.pumphouse/invoices")


class PrintInvoice(Command):
    customer: str
    number: int
    amount: int


@app.handler
class PrintInvoiceHandler(Handler[PrintInvoice]):
    async def handle(self, request: PrintInvoice) -> None:
        if request.amount < 0:
            raise InvalidMessage("an invoice asks for something")
        context = current_context()
        if request.number == 1 and context is not None and context.attempt == 1:
            print(f"{request.customer}: invoice {request.number} has to wait", flush=True)
            raise DeferMessage(timedelta(seconds=1))
        print(f"{request.customer}: invoice {request.number} printed", flush=True)


app.subscribe(
    Subscription(
        queue="invoices",
        request=PrintInvoice,
        dead_letter_queue="invoices-dead",
        invalid_queue="invoices-invalid",
        failure=hybrid(max_retries=4),
        max_receive_count=20,  # For what kills its process each time.
        wait=timedelta(seconds=1),
    )
)


async def shop(gateway: str | None = None) -> None:
    app.override(gateway=gateway)
    async with app:
        await app.post(PrintInvoice("ada", 1, 300))
        await app.post(PrintInvoice("bob", 2, 50))
        await app.post(PrintInvoice("carl", 3, -1))


if __name__ == "__main__":
    asyncio.run(shop(*sys.argv[1:]))
