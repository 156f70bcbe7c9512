"""`App.pumping`: a pump beside one's own code, whose failure is one's own."""

from __future__ import annotations

import asyncio

import pytest

from gateways.memory import MemoryGateway
from pump import App, Command, Message, Subscription, UnacceptableLimit
from pump.errors import QueueNotFound, UnacceptableLimitReached
from pump.stores.spill import MemorySpill


class Greet(Command):
    name: str


def an_app(**fields: object) -> App:
    app = App(MemoryGateway(), spill=MemorySpill())

    @app.handler
    async def greet(request: Greet) -> None: ...

    app.subscribe(Subscription(queue="greetings", request=Greet, **fields))  # type: ignore[arg-type]
    return app


async def test_when_the_body_ends_then_the_pump_has_drained() -> None:
    app = an_app()

    async with app, app.pumping() as dispatcher:
        await app.post(Greet("Ada"))
        await dispatcher.wait_until_empty()

    [performer] = dispatcher.performers
    assert (performer.state, performer.stats.processed) == ("stopped", 1)


async def test_when_the_queue_is_missing_then_that_is_raised_as_it_is() -> None:
    """R2, R22."""
    app = an_app(make_channels="validate")

    with pytest.raises(QueueNotFound):
        async with app, app.pumping():
            pytest.fail("there is nothing to pump")


async def test_when_the_pump_stops_for_good_then_the_body_is_cancelled_and_told_why() -> None:
    app = an_app(invalid_queue="invalid", unacceptable_limit=UnacceptableLimit(count=1))

    async def wait_for_ever() -> None:
        async with app, app.pumping():
            await app.post(Message(body=b"garbage"), queue="greetings")
            await asyncio.Event().wait()

    with pytest.raises(UnacceptableLimitReached):
        await wait_for_ever()


async def test_when_the_body_fails_then_its_error_gets_out_as_it_is() -> None:
    app = an_app()

    with pytest.raises(ZeroDivisionError):
        async with app, app.pumping():
            raise ZeroDivisionError
