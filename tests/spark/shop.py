"""The app of the cluster tests: its handler leaves a line for every message it is given.

The line is one write to the end of a file, so that a kill neither tears nor loses it.
"""

from __future__ import annotations

import os
from datetime import timedelta
from functools import cache

from pump import App, Command, InvalidMessage, RejectMessage, Subscription, current_context

FOLDER = "SHOP_FOLDER"
"""The variable that names the folder of the file `handled`."""
LEASE = timedelta(seconds=10)


class Order(Command):
    number: int

    @property
    def is_refused(self) -> bool:
        return self.number % 100 == 7

    @property
    def is_nonsense(self) -> bool:
        return self.number % 100 == 13


SUBSCRIPTION = Subscription(
    queue="orders",
    request=Order,
    dead_letter_queue="orders-dead",
    invalid_queue="orders-invalid",
    lease=LEASE,
    wait=timedelta(seconds=1),
    concurrency=20,
)
app = App()
app.subscribe(SUBSCRIPTION)


@app.handler
async def handle(order: Order) -> None:
    context = current_context()
    assert context is not None
    os.write(_handled(), f"{order.number} {context.attempt} {os.getpid()}\n".encode())
    if order.is_refused:
        raise RejectMessage("out of stock")
    if order.is_nonsense:
        raise InvalidMessage("no such article")


@cache
def _handled() -> int:
    path = os.path.join(os.environ[FOLDER], "handled")
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
