"""Secrets in every place a user can put one, an app that meets them all, and ears everywhere."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import structlog

from pump import (
    App,
    Backoff,
    Command,
    DeferMessage,
    InvalidMessage,
    Message,
    Subscription,
    current_context,
    hybrid,
)
from pump.events import OutcomeEvent
from pump.message import Delivery

BODY = "body-5d1c0e7a"
HEADER = "header-91ab44f0"
PASSWORD = "password-b8e2107c"
ACCESS_KEY_ID = "AKIAIOSFODNN7EXAMPLE"
AWS_SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
AWS_TOKEN = "IQoJb3JpZ2luX2VjEXAMPLETOKEN"
KEY = bytes(range(65, 97))
LOGGED = "logged-3c9d55e1"

SECRETS = (
    *(BODY, HEADER, PASSWORD, LOGGED, ACCESS_KEY_ID, AWS_SECRET, AWS_TOKEN),
    *(KEY.decode(), KEY.hex(), base64.b64encode(KEY).decode()),
)

NOW = Backoff(initial=timedelta(0), maximum=timedelta(0))


class Order(Command):
    """What is in it is a secret; `fate` says what becomes of it."""

    text: str
    fate: str = "fine"


class Heard(logging.Handler):
    """What any handler of the application's would be given of our lines."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.split(".")[0] in ("pump", "gateways", "handlers"):
            self.told.append(f"{record.getMessage()} {vars(record)!r}")


def leaked(*texts: object) -> list[str]:
    """The secrets that stand in any of these, as they are or as `repr` would write them."""
    everything = "\n".join(map(str, texts))
    return [secret for secret in SECRETS if secret in everything]


def talkative(request: Order) -> None:
    """Log as carelessly as handlers do."""
    context = current_context()
    assert context is not None
    assert context.message is not None
    message = context.message
    url = f"amqp://guest:{PASSWORD}@broker/"
    log = structlog.get_logger("shop")
    log.info("got", request=request, message=message, password=LOGGED, url=url)
    log.debug("got %s", request)
    log.info("calling", headers={"authorization": LOGGED}, config={"db": {"api_key": LOGGED}})
    log.info(f"using token={LOGGED} at {url}", delivery=context.delivery, context=context)
    plain = logging.getLogger("shop.plain")
    plain.info("got %s and %r", request, {"order": request})
    plain.warning("cannot reach %s", url, extra={"secret_key": LOGGED, "body": message.body})
    plain.info(request)
    try:
        raise ConnectionError(f"cannot reach {url}")
    except ConnectionError:
        log.exception("failed", request=request)
        plain.exception("failed")


class Shop:
    """An app that meets secrets; `seen` is what its handler read, so that they still work."""

    def __init__(self, gateway: Any, *, make_channels: str = "create", **options: Any) -> None:
        self.seen: list[str] = []
        self.outcomes: list[OutcomeEvent] = []
        self.dead: list[Delivery] = []
        self.app = App(gateway, observers=[self._observe], **options)
        self.app.register(Order, self._handle)
        self.subscription = self.app.subscribe(
            Subscription(
                queue="orders",
                request=Order,
                dead_letter_queue="orders-dead",
                invalid_queue="orders-invalid",
                failure=hybrid(1, backoff=NOW),
                wait=timedelta(seconds=0.2),
                make_channels=make_channels,
            )
        )

    async def _handle(self, request: Order) -> None:
        self.seen.append(request.text)
        talkative(request)
        match request.fate:
            case "put off" if self.seen.count(request.text) == 1:
                raise DeferMessage(timedelta(0))
            case "failing":
                raise ValueError(f"cannot handle {request.text}") from KeyError(request.text)
            case "failing together":
                raise ExceptionGroup(request.text, [ValueError(request.text)])
            case "refused":
                raise InvalidMessage(f"no such order: {request.text}")
            case _:
                return

    def _observe(self, event: object) -> None:
        if isinstance(event, OutcomeEvent):
            self.outcomes.append(event)
            raise RuntimeError(f"an observer fails: {event.detail}")

    async def send_all(self) -> None:
        """One of each fate, and two that cannot be read."""
        headers = {"authorization": f"Bearer {HEADER}", "x-note": HEADER}
        for fate in ("fine", "put off", "failing", "failing together", "refused"):
            await self.app.post(Order(text=f"{BODY} {fate}", fate=fate), headers=headers)
        for body in (f'{{"text": "{BODY}", ', f'{{"text": {{"inner": "{BODY}"}}}}'):
            message = Message(body=body.encode(), type="Order", headers=headers)
            await self.app.post(message, queue="orders")

    async def pump(self) -> None:
        """Until every queue is empty, in an open app."""
        dispatcher = self.app.dispatcher()
        running = asyncio.create_task(dispatcher.run())
        await dispatcher.channels_made.wait()
        await self.send_all()
        await dispatcher.wait_until_empty()
        dispatcher.drain()
        await running
        for queue in ("orders-dead", "orders-invalid"):
            self.dead += await self._take(queue)

    async def _take(self, queue: str) -> Sequence[Delivery]:
        async with self.app.consumer(Subscription(queue=queue, request=Order)) as consumer:
            found: list[Delivery] = []
            while batch := await consumer.receive(max_count=10, wait=timedelta(0)):
                found += batch
            return found
