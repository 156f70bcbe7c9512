"""The path of one message: which modules of ours it passes, and how often it goes from one to
another.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from datetime import timedelta
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from handlers import Handler
from pump import App, Command, MakeChannels, OutcomeEvent, RejectMessage, Subscription
from pump.ports import Gateway

from .source import PACKAGES, ROOT

_ELSEWHERE = "gateways/sqs_server/"
"""The other end of a connection, where it runs in this process."""


class Greet(Command):
    name: str
    is_wanted: bool = True


class Greeter(Handler[Greet]):
    async def handle(self, request: Greet) -> None:
        if not request.is_wanted:
            raise RejectMessage("not wanted")


class Tracer:
    """Notes every call of a function of ours, in every thread, while it is on."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.is_on = False
        self._modules: dict[CodeType, str | None] = {}

    def __enter__(self) -> Tracer:
        threading.setprofile(self)
        sys.setprofile(self)
        return self

    def __exit__(self, *details: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or not self.is_on:
            return
        code = frame.f_code
        if code not in self._modules:
            self._modules[code] = _module_of(code)
        module = self._modules[code]
        if module is not None:
            self.calls.append(module)

    @property
    def modules(self) -> set[str]:
        return set(self.calls)

    @property
    def jump_count(self) -> int:
        return sum(here != there for here, there in zip(self.calls, self.calls[1:], strict=False))


def _module_of(code: CodeType) -> str | None:
    path = Path(code.co_filename)
    if not path.is_relative_to(ROOT):
        return None
    relative = path.relative_to(ROOT).as_posix()
    is_ours = relative.startswith(tuple(f"{each}/" for each in PACKAGES))
    return relative if is_ours and not relative.startswith(_ELSEWHERE) else None


async def trace(gateway: str | Gateway, *, is_wanted: bool = True) -> Tracer:
    """Follow the second message of a running app from its receive to the end of its settlement."""
    app = App(gateway)
    app.register(Greet, Greeter)
    app.subscribe(
        Subscription(
            queue="greetings",
            request=Greet,
            dead_letter_queue="greetings-dead",
            make_channels=MakeChannels.CREATE,
        )
    )
    settled = asyncio.Queue[Any]()
    app.observe(settled.put_nowait)

    async def next_outcome() -> None:
        while not isinstance(await settled.get(), OutcomeEvent):
            pass

    with Tracer() as tracer:
        async with app, app.pumping():
            await app.post(Greet(name="first", is_wanted=is_wanted))
            await next_outcome()
            # It is sent now and received later: sending is not on the path.
            await app.post(Greet(name="second", is_wanted=is_wanted), delay=timedelta(seconds=1))
            tracer.is_on = True
            await next_outcome()
            tracer.is_on = False
    return tracer
