"""Publishing with confirms: a message is sent when the broker has it on disk, and not before."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs

from pump.clock import Clock
from pump.errors import (
    ConnectionFailed,
    MessageTooLarge,
    PumpError,
    QueueNotFound,
    Throttled,
)
from pump.tasks import BackgroundTasks, look_at

from .connection import RabbitMQLink
from .errors import Where, fault_of, translated
from .names import PUBLISH_BATCH
from .wire import Parcel

if TYPE_CHECKING:
    from .amqp import Channel

PublishResult = PumpError | None
"""What became of a publish: None when the broker has confirmed it."""
Addressed = tuple[str, Parcel]
"""A parcel, after the queue that it is for."""


class Publisher:
    """Publishes through a channel of its own, in the order of the calls.

    A channel of its own: an error of the broker closes the channel, and every publish on it is
    then in doubt.
    """

    def __init__(self, link: RabbitMQLink, *, clock: Clock, patience_s: float) -> None:
        self._link = link
        self._clock = clock
        self._patience_s = patience_s
        self._channel: Channel | None = None
        self._opening = asyncio.Lock()
        self._writing = asyncio.Lock()
        self._tasks = BackgroundTasks("rabbitmq")
        self._under_way: dict[str, asyncio.Future[None]] = {}
        """By message id: the SDK tells a returned message by it, so each is sent once at a time."""

    async def publish(self, queue: str, parcels: Sequence[Parcel]) -> list[PublishResult]:
        """As `publish_each`, to one queue."""
        return await self.publish_each([(queue, parcel) for parcel in parcels])

    async def publish_each(self, addressed: Sequence[Addressed]) -> list[PublishResult]:
        """What became of each. `QueueNotFound` when there is no such queue.

        Goes on in the background when cancelled: what is half written cannot be taken back.
        """
        return await asyncio.shield(self._tasks.start(self._publish(addressed), "publish"))

    async def aclose(self) -> None:
        """Wait for what is under way, which ends at the latest when nothing was confirmed in time.
        The channel is closed with its connection: a broker that is short of memory answers nothing
        on a connection that publishes.
        """
        await self._tasks.finish()
        self._channel = None

    async def _publish(self, addressed: Sequence[Addressed]) -> list[PublishResult]:
        results: list[PublishResult] = []
        for chunk in _chunks(addressed):
            while ahead := [self._under_way[i] for i in map(_id, chunk) if i in self._under_way]:
                await asyncio.wait(ahead)
            fault: PublishResult
            try:
                results += await self._publish_chunk(chunk)
            except PumpError as error:
                fault = error
            else:
                fault = next((each for each in results if isinstance(each, Throttled)), None)
            if fault is not None:
                # What comes after would wait as long and fail alike, or overtake; what came before
                # is confirmed.
                return results + [fault] * (len(addressed) - len(results))
        return results

    async def _publish_chunk(self, chunk: Sequence[Addressed]) -> list[PublishResult]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ids = set(map(_id, chunk))
        self._under_way.update(dict.fromkeys(ids, done))
        try:
            with translated(self._where(chunk[0][0])):
                answers = await self._answers(chunk)
            pairs = zip(chunk, answers, strict=True)
            return [self._result(queue, parcel, answer) for (queue, parcel), answer in pairs]
        finally:
            for each in ids:
                del self._under_way[each]
            done.set_result(None)

    async def _answers(self, chunk: Sequence[Addressed]) -> list[object]:
        from . import amqp

        ends_at_s = self._clock.now_s() + self._patience_s
        channel = await self._opened(chunk[0][0])
        try:
            async with self._writing:
                answers = await amqp.publish(channel, chunk)
            try:
                # A broker that is short of memory or disk does not answer until it has some.
                async with self._clock.timeout(max(0.0, ends_at_s - self._clock.now_s())):
                    await asyncio.wait(answers)
            except TimeoutError:
                pass
            pairs = zip(chunk, answers, strict=True)
            return [self._answer(queue, answer) for (queue, _), answer in pairs]
        finally:
            amqp.forget(channel, (parcel for _, parcel in chunk))

    def _answer(self, queue: str, answer: asyncio.Future[Any]) -> object:
        if not answer.done():
            answer.add_done_callback(look_at)
            return Throttled(self._where(queue).target)
        if answer.cancelled():
            return asyncio.CancelledError()
        return answer.exception() or answer.result()

    def _result(self, queue: str, parcel: Parcel, answer: object) -> PublishResult:
        from . import amqp

        if amqp.is_confirmed(answer):
            return None
        if not isinstance(answer, BaseException):
            return QueueNotFound(queue)
        if isinstance(answer, asyncio.CancelledError):
            # The SDK's own way to say it.
            answer = ConnectionError("the connection was closed")
        fault = fault_of(answer, self._where(queue))
        if fault is None:
            raise answer
        if fault is not answer and isinstance(fault, MessageTooLarge):
            return self._too_large(parcel, fault)
        return fault

    def _too_large(self, parcel: Parcel, fault: MessageTooLarge) -> PublishResult:
        """The broker closes the channel for one that is too large, and all on it are in doubt."""
        if len(parcel.body) > fault.max_size:
            return attrs.evolve(fault, size=len(parcel.body))
        return ConnectionFailed(self._link.address, f"closed over another message: {fault}")

    async def _opened(self, queue: str) -> Channel:
        try:
            async with self._clock.timeout(self._patience_s), self._opening:
                if self._channel is None or self._channel.is_closed:
                    self._channel = await self._link.channel(confirms=True)
                return self._channel
        except TimeoutError:
            if self._link.is_connected:
                raise Throttled(self._where(queue).target) from None
            detail = f"no connection within {self._patience_s:g} s"
            raise ConnectionFailed(self._link.address, detail) from None

    def _where(self, queue: str) -> Where:
        return Where(self._link.address, "publishing", queue)


def _id(addressed: Addressed) -> str:
    return str(addressed[1].properties.get("message_id"))


def _chunks(addressed: Sequence[Addressed]) -> list[list[Addressed]]:
    """Parts that wait for their confirms together: not too many, and no id twice."""
    chunks: list[list[Addressed]] = []
    ids: set[str] = set()
    for each in addressed:
        if not chunks or len(chunks[-1]) >= PUBLISH_BATCH or _id(each) in ids:
            chunks.append([])
            ids.clear()
        chunks[-1].append(each)
        ids.add(_id(each))
    return chunks
