"""One client per service: made once, tried again when it failed, left alone by cancellation."""

from __future__ import annotations

import asyncio

import pytest

from gateways._aws.sdk_transport import Clients
from pump.clock import yield_to_loop


class _Maker:
    """Makes clients when it is told, and counts."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.made: list[str] = []
        self.errors: list[Exception] = []
        self.at_once = 0

    async def __call__(self, service: str) -> str:
        self.at_once += 1
        assert self.at_once == 1, "a session makes one client at a time"
        self.made.append(service)
        await self.go.wait()
        self.at_once -= 1
        if self.errors:
            raise self.errors.pop()
        return service.upper()


async def test_when_many_ask_at_once_then_one_client_is_made() -> None:
    """R53."""
    maker = _Maker()
    clients = Clients(maker)
    asking = [asyncio.create_task(clients.of(name)) for name in ["sqs", "s3"] * 50]

    maker.go.set()
    got = await asyncio.gather(*asking)

    assert got == ["SQS", "S3"] * 50
    assert sorted(maker.made) == ["s3", "sqs"]
    assert await clients.of("sqs") == "SQS"


async def test_when_making_fails_then_all_who_asked_hear_it_and_the_next_tries_again() -> None:
    """R31: a failed creation is never cached."""
    maker = _Maker()
    maker.go.set()
    maker.errors.append(OSError("no"))
    clients = Clients(maker)

    first = await asyncio.gather(*(clients.of("sqs") for _ in range(3)), return_exceptions=True)
    second = await clients.of("sqs")

    assert [str(error) for error in first] == ["no"] * 3
    assert (second, maker.made) == ("SQS", ["sqs", "sqs"])


async def test_when_one_who_asks_is_cancelled_then_the_others_still_get_the_client() -> None:
    """Law 6, R31."""
    maker = _Maker()
    clients = Clients(maker)
    first, second = (asyncio.create_task(clients.of("sqs")) for _ in range(2))
    await yield_to_loop()

    first.cancel()
    await yield_to_loop()
    maker.go.set()

    assert await second == "SQS"
    assert first.cancelled()
    assert maker.made == ["sqs"]


async def test_when_all_who_ask_are_cancelled_and_making_fails_then_nothing_is_left_behind() -> (
    None
):
    """R31: an exception nobody waits for is no warning (warnings are errors here)."""
    maker = _Maker()
    maker.errors.append(OSError("no"))
    clients = Clients(maker)
    asking = asyncio.create_task(clients.of("sqs"))
    while not maker.made:
        await yield_to_loop()

    asking.cancel()
    maker.go.set()
    while maker.at_once:
        await yield_to_loop()
    await yield_to_loop()

    assert await clients.of("sqs") == "SQS"
    assert maker.made == ["sqs", "sqs"]


async def test_when_closed_while_making_then_who_asked_is_not_left_waiting() -> None:
    clients = Clients(_Maker())
    asking = asyncio.create_task(clients.of("sqs"))
    await yield_to_loop()

    await clients.aclose()

    with pytest.raises(asyncio.CancelledError):
        await asking
