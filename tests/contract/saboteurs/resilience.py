"""Saboteurs of a network that fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from pump.errors import ConnectionFailed
from pump.message import Delivery

from ..naive_network import NaiveRemote
from .base import Saboteur


class StaysAwayOnceSevered(Saboteur):
    class Remote(NaiveRemote):
        async def receive(self, receive: Callable[[], Awaitable[Any]]) -> Any:
            try:
                return await super().receive(receive)
            except ConnectionFailed:
                self.network.let_in = lambda: None  # type: ignore[method-assign]
                self.network.is_shut = True
                raise


class TakesAnAbsenceForAnEmptyQueue(Saboteur):
    class Remote(NaiveRemote):
        async def receive(self, receive: Callable[[], Awaitable[Any]]) -> Any:
            try:
                return await super().receive(receive)
            except ConnectionFailed:
                return []


class DoesNotNoticeThatItIsSevered(Saboteur):
    class Remote(NaiveRemote):
        async def receive(self, receive: Callable[[], Awaitable[Any]]) -> Any:
            return await receive()


class ForgetsWhatIsInHandWhenSevered(Saboteur):
    """The broker goes on believing that somebody has it."""

    class Remote(NaiveRemote):
        async def settle(
            self, perform: Callable[[], Awaitable[Any]], held: Sequence[Delivery]
        ) -> Any:
            if self.network.severed_count:
                self._forget(held)
            return await super().settle(perform, held)

        def _forget(self, held: Sequence[Delivery]) -> None:
            receipts = {each.receipt for each in held}
            for queue in self.gateway.stock.values():
                for entry in queue.entries:
                    if entry.receipt in receipts:
                        entry.receipt = "nobody's"


class LosesWhatItWasSettling(Saboteur):
    class Remote(NaiveRemote):
        async def settle(
            self, perform: Callable[[], Awaitable[Any]], held: Sequence[Delivery]
        ) -> Any:
            try:
                return await super().settle(perform, held)
            except ConnectionFailed:
                receipts = {each.receipt for each in held}
                for queue in self.gateway.stock.values():
                    queue.entries = [e for e in queue.entries if e.receipt not in receipts]
                raise
