"""Sender: batches on their way to the target, written down before and after.

| what happens                 | recorded          | and then                           |
|------------------------------|-------------------|------------------------------------|
| accepted                     | as sent           | it may be removed                  |
| refused by the target        | as not sent       | stays in the dead-letter queue     |
| no answer                    | as begun, no more | sent again, with the same id       |
| no answer, again and again   | as begun, no more | the run ends with the error        |
| the record cannot be written | –                 | the run ends; nothing more is sent |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import attrs

from ..clock import Clock
from ..errors import (
    AccessDenied,
    ConfigurationError,
    ConnectionFailed,
    GatewayError,
    PumpError,
    QueueNotFound,
    SendFailed,
    StorageFailed,
)
from ..message import Delivery
from ..ports import ProducerPort
from ..retrying import TRIES, is_passing, pause
from .folder import Record
from .rows import entry_of, redriven

_ANSWER_S = 30.0
_ABOUT_THE_QUEUE = (QueueNotFound, AccessDenied, ConfigurationError, StorageFailed)


@attrs.frozen
class Sent:
    """What became of a batch."""

    accepted: Mapping[Delivery, float] = attrs.field(factory=dict)
    """With the moment that was recorded."""
    refused: tuple[tuple[Delivery, Exception], ...] = ()
    repeated_count: int = 0


class Sender:
    """Sends dead letters to one queue."""

    def __init__(self, producer: ProducerPort, target: str, record: Record, clock: Clock) -> None:
        self._producer = producer
        self._target = target
        self._record = record
        self._clock = clock
        self._in_doubt: set[str] = set()

    def doubt(self, entries: set[str]) -> None:
        """These may have been sent by somebody who did not live to say so."""
        self._in_doubt |= entries

    async def send(
        self,
        deliveries: Sequence[Delivery],
        *,
        holds: Callable[[Delivery], bool],
        stopping: asyncio.Event,
    ) -> Sent:
        """Send what is still held; return when each is accepted and recorded, or refused.

        Every message id is in a batch once. Raises when the target cannot be reached, and
        `StorageFailed` when what was sent cannot be recorded.
        """
        sent = Sent()
        left = list(deliveries)
        for attempt in range(1, TRIES + 1):
            left = [each for each in left if holds(each)]
            if not left:
                return sent
            once, left, error = await self._once(left)
            sent = _joined(sent, once)
            if not left or error is None:
                return sent
            if attempt == TRIES:
                raise error
            await pause(attempt, self._clock)
            if stopping.is_set():
                return sent
        return sent

    async def _once(
        self, deliveries: Sequence[Delivery]
    ) -> tuple[Sent, list[Delivery], PumpError | None]:
        """What came of one try, what is to be tried again, and why."""
        entries = {each: entry_of(each) for each in deliveries}
        batch = await asyncio.to_thread(self._record.sending, list(entries.values()))
        failures = await self._failures(deliveries)
        failed = [each for each in deliveries if each.message.id in failures]
        again = [each for each in failed if is_passing(failures[each.message.id])]
        accepted = [each for each in deliveries if each not in failed]
        at_s = self._clock.time_s()
        if accepted or not again:
            without = {entries[each] for each in failed}
            await asyncio.to_thread(self._record.sent, batch, without, at_s)
        repeated = self._in_doubt & {entries[each] for each in accepted}
        self._in_doubt -= repeated
        self._in_doubt |= {entries[each] for each in again}
        refused = tuple((each, failures[each.message.id]) for each in failed if each not in again)
        sent = Sent(dict.fromkeys(accepted, at_s), refused, len(repeated))
        error = failures[again[0].message.id] if again else None
        return sent, again, error if isinstance(error, PumpError) else None

    async def _failures(self, deliveries: Sequence[Delivery]) -> dict[str, Exception]:
        """By message id, why it was not accepted."""
        messages = [redriven(each, self._target) for each in deliveries]
        try:
            async with self._clock.timeout(_ANSWER_S):
                await self._producer.send(messages)
        except TimeoutError:
            silence = ConnectionFailed(self._target, f"no answer within {_ANSWER_S:g} s")
            return {message.id: silence for message in messages}
        except SendFailed as error:
            return dict(error.failures)
        except GatewayError as error:
            if is_passing(error):
                return {message.id: error for message in messages}
            # What happens to one message alone is raised as it is.
            if len(messages) > 1 or isinstance(error, _ABOUT_THE_QUEUE):
                raise
            return {messages[0].id: error}
        return {}


def _joined(one: Sent, other: Sent) -> Sent:
    return Sent(
        {**one.accepted, **other.accepted},
        one.refused + other.refused,
        one.repeated_count + other.repeated_count,
    )
