"""Sessions: one customer's messages for one worker at a time, in the order they were sent.

Run it:   python -m samples.sessions
Expect:   packer 1 has ada, packer 2 has bob
          packer 2 wants ada: locked
          ada: book, pen, ink
          bob: lamp, bulb
          packer 2 opens ada again: ribbon
"""

import asyncio
from datetime import timedelta

from pump import App, Message, Subscription
from pump.errors import SessionLocked
from pump.session import Session

app = App("memory://")
parcels = Subscription(queue="parcels", request=dict, wait=timedelta(seconds=1))


def order(customer: str, item: str) -> Message:
    """A message whose `group` is the session it belongs to."""
    return Message(body=item.encode(), group=customer)


async def pack(session: Session) -> str:
    """Everything of one customer that is there, in order."""
    items = []
    while deliveries := await session.receive(10, wait=timedelta(0)):
        for delivery in deliveries:
            items.append(delivery.message.body.decode())
            await session.ack(delivery)
    return ", ".join(items)


async def main() -> None:
    async with app, app.consumer(parcels) as one, app.consumer(parcels) as two:
        bought = ["ada book", "bob lamp", "ada pen", "ada ink", "bob bulb"]
        await app.post_all([order(*each.split()) for each in bought], queue="parcels")

        # The next free session that has messages; None when there is none for `wait`.
        first, second = await one.accept_session(), await two.accept_session()
        assert first is not None
        assert second is not None
        print(f"packer 1 has {first.id}, packer 2 has {second.id}")
        try:
            await two.accept_session("ada")
        except SessionLocked:
            print("packer 2 wants ada: locked")
        async with first, second:  # The locks are renewed until they are closed.
            for session in (first, second):
                print(f"{session.id}: {await pack(session)}")
        await app.post_all([order("ada", "ribbon")], queue="parcels")
        async with await two.accept_session("ada") as again:
            print(f"packer 2 opens {again.id} again: {await pack(again)}")


if __name__ == "__main__":
    asyncio.run(main())
