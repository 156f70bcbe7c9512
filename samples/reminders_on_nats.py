"""Reminders on NATS: sent now, handled when they are due, and only once however often sent.

Run it:   python -m samples.reminders_on_nats
          pump run samples.reminders_on_nats:app --until-empty
          (the calendar, which sends; then the service, which reminds)
On NATS:  nats-server -js
          python -m samples.reminders_on_nats nats://localhost
          pump run samples.reminders_on_nats:app --gateway nats://localhost --until-empty
Expect:   ada: the dentist
          bob: the train
"""

import asyncio
import sys
from datetime import timedelta

from handlers import Handler
from pump import App, Command, Subscription, hybrid

app = App("local://.pumphouse/reminders")


class Remind(Command):
    whom: str
    of: str


@app.handler
class RemindHandler(Handler[Remind]):
    async def handle(self, request: Remind) -> None:
        print(f"{request.whom}: {request.of}", flush=True)


app.subscribe(
    Subscription(
        queue="reminders",
        request=Remind,
        dead_letter_queue="reminders-dead",
        failure=hybrid(max_retries=4),
        wait=timedelta(seconds=1),
    )
)


async def calendar(gateway: str | None = None) -> None:
    app.override(gateway=gateway)
    soon = timedelta(seconds=1)
    async with app:
        # A calendar that is not sure whether a reminder arrived sends it again: the queue knows
        # its de-duplication id, and keeps it once.
        for _ in range(2):
            await app.post(Remind("ada", "the dentist"), deduplication_id="ada-9", delay=soon)
            await app.post(Remind("bob", "the train"), deduplication_id="bob-7", delay=2 * soon)


if __name__ == "__main__":
    asyncio.run(calendar(*sys.argv[1:]))
