"""Saboteurs of sending."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from pump.message import JSON, Message
from pump.subscription import QueueSpec

from ..naive import Entry, Queue
from ..naive_ports import NaiveProducer
from .base import Saboteur


class GivesOneIdToAll(Saboteur):
    class Producer(NaiveProducer):
        async def send(self, messages: Sequence[Message], *, delay_s: float = 0.0) -> Sequence[str]:
            return ["id" for _ in await super().send(messages, delay_s=delay_s)]


class DropsBytesThatAreNotText(Saboteur):
    def add(self, queue: Queue, message: Message, delay_s: float) -> None:
        text = message.body.decode(errors="ignore")
        super().add(queue, replace(message, body=text.encode()), delay_s)


class RefusesEmptyBodies(Saboteur):
    def add(self, queue: Queue, message: Message, delay_s: float) -> None:
        super().add(queue, replace(message, body=message.body or b" "), delay_s)


class KeepsAsciiHeadersOnly(Saboteur):
    def add(self, queue: Queue, message: Message, delay_s: float) -> None:
        headers = {name: text for name, text in message.headers.items() if text.isascii()}
        super().add(queue, replace(message, headers=headers), delay_s)


class KeepsTenHeaders(Saboteur):
    def add(self, queue: Queue, message: Message, delay_s: float) -> None:
        headers = dict(list(message.headers.items())[:10])
        super().add(queue, replace(message, headers=headers), delay_s)


class DropsReplyTo(Saboteur):
    def add(self, queue: Queue, message: Message, delay_s: float) -> None:
        super().add(queue, replace(message, reply_to=None), delay_s)


class TakesAnEmptyFieldForNone(Saboteur):
    def add(self, queue: Queue, message: Message, delay_s: float) -> None:
        tidied = replace(message, content_type=message.content_type or JSON)
        super().add(queue, tidied, delay_s)


class MakesTheQueueItSendsTo(Saboteur):
    class Producer(NaiveProducer):
        async def send(self, messages: Sequence[Message], *, delay_s: float = 0.0) -> Sequence[str]:
            self.gateway.create(QueueSpec(name=self.name))
            return await super().send(messages, delay_s=delay_s)


class SendsToEveryQueue(Saboteur):
    def add(self, queue: Queue, message: Message, delay_s: float) -> None:
        for each in self.stock.values():
            super().add(each, message, delay_s)


class SendsTenAtMost(Saboteur):
    class Producer(NaiveProducer):
        async def send(self, messages: Sequence[Message], *, delay_s: float = 0.0) -> Sequence[str]:
            await super().send(messages[:10], delay_s=delay_s)
            return [message.id for message in messages]


class FailsToSendNothing(Saboteur):
    class Producer(NaiveProducer):
        async def send(self, messages: Sequence[Message], *, delay_s: float = 0.0) -> Sequence[str]:
            return [messages[0].id, *(await super().send(messages, delay_s=delay_s))[1:]]


class TakesBodiesOfAnySize(Saboteur):
    def check_size(self, message: Message) -> None:
        pass


class SendsTheRestOfATooLargeBatchInSilence(Saboteur):
    class Producer(NaiveProducer):
        async def send(self, messages: Sequence[Message], *, delay_s: float = 0.0) -> Sequence[str]:
            ids: list[str] = []
            for message in messages:
                self.gateway.check_size(message)
                ids += await super().send([message], delay_s=delay_s)
            return ids


class IgnoresTheDelayOfASend(Saboteur):
    def add(self, queue: Queue, message: Message, delay_s: float) -> None:
        super().add(queue, message, 0.0)


class HalvesTheDelayOfASend(Saboteur):
    def add(self, queue: Queue, message: Message, delay_s: float) -> None:
        super().add(queue, message, delay_s / 2)


class BlocksTheQueueBehindADelay(Saboteur):
    def is_blocked(self, queue: Queue, entry: Entry) -> bool:
        is_behind = any(e.number < entry.number and self.is_delayed(e) for e in queue.entries)
        return is_behind or super().is_blocked(queue, entry)

    def is_delayed(self, entry: Entry) -> bool:
        return entry.attempt == 0 and entry.visible_at_s > self.clock.now_s()


class IgnoresDeduplication(Saboteur):
    def is_duplicate(self, queue: Queue, message: Message) -> bool:
        return False


class RemembersDuplicatesForEver(Saboteur):
    def is_duplicate(self, queue: Queue, message: Message) -> bool:
        if super().is_duplicate(queue, message):
            return True
        queue.seen_until_s = dict.fromkeys(queue.seen_until_s, float("inf"))
        return False


class DeduplicatesAcrossQueues(Saboteur):
    def is_duplicate(self, queue: Queue, message: Message) -> bool:
        first = next(iter(self.stock.values()))
        return super().is_duplicate(first, message)


class DeduplicatesBetweenSendsOnly(Saboteur):
    class Producer(NaiveProducer):
        async def send(self, messages: Sequence[Message], *, delay_s: float = 0.0) -> Sequence[str]:
            first, *rest = messages
            await super().send([first], delay_s=delay_s)
            plain = [replace(message, deduplication_id=None) for message in rest]
            await super().send(plain, delay_s=delay_s)
            return [message.id for message in messages]


class ForgetsAnIdOnceItsMessageIsGone(Saboteur):
    def is_duplicate(self, queue: Queue, message: Message) -> bool:
        present = {entry.message.deduplication_id for entry in queue.entries}
        return super().is_duplicate(queue, message) and message.deduplication_id in present
