"""Payments: a message that arrives twice is paid once, even across restarts.

Run it:   python -m samples.payments
Expect:   charged invoice-7: 40 EUR
          seen again: invoice-7, not charged twice
"""

import asyncio
import tempfile
from pathlib import Path

from handlers import Handler, OnceOnly, use
from pump import App, Command, Message, Subscription
from pump.stores.sqlite_inbox import SqliteInbox

folder = Path(tempfile.mkdtemp(prefix="payments-"))
inbox = SqliteInbox(folder / "inbox.db")
app = App("memory://")
charges: list[str] = []


class ChargeCard(Command):
    invoice: str
    amount: int


@app.handler
@use(OnceOnly(inbox))
class ChargeCardHandler(Handler[ChargeCard]):
    async def handle(self, request: ChargeCard) -> None:
        charges.append(request.invoice)
        print(f"charged {request.invoice}: {request.amount} EUR")


app.subscribe(
    Subscription(
        queue="payments",
        request=ChargeCard,
        dead_letter_queue="payments-dead",
        concurrency=1,  # One after the other; side by side, the twin is deferred until later.
    )
)


async def main() -> None:
    # The same message twice, as a producer sends it that never heard the first answer.
    body = b'{"invoice": "invoice-7", "amount": 40}'
    twice = [Message(id="payment-7", type="ChargeCard", body=body)] * 2
    async with app, app.pumping() as dispatcher:
        await app.post_all(twice, queue="payments")
        await dispatcher.wait_until_empty()
    print(f"seen again: {charges[0]}, not charged twice" if len(charges) == 1 else "charged twice!")
    await inbox.aclose()


if __name__ == "__main__":
    asyncio.run(main())
