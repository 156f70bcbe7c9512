"""Retrying: asking a broker again, a few times, where asking again can help.

For work that ends, such as browsing a queue or a bulk send. The pump itself never gives up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from .backoff import RECONNECT
from .clock import Clock
from .errors import ConnectionFailed, CredentialsExpired, GatewayError, PoolExhausted, Throttled
from .outcome import Refusal, Settlement
from .ports import ConsumerPort

TRIES = 5
"""With the pauses between them about a second and a half, beside what the gateway tries itself."""

_T = TypeVar("_T")


def is_passing(error: BaseException) -> bool:
    """Whether the broker may answer otherwise in a moment, without any change."""
    return isinstance(error, ConnectionFailed | Throttled | PoolExhausted | CredentialsExpired)


async def pause(attempt: int, clock: Clock) -> None:
    """Wait after the `attempt`-th failure, from 1."""
    await clock.sleep(RECONNECT.delay_s(attempt, clock.chance()))


async def asked_again(call: Callable[[], Awaitable[_T]], *, clock: Clock, tries: int = TRIES) -> _T:
    """The answer to `call`, which is repeated while its error is one that passes."""
    for attempt in range(1, tries):
        try:
            return await call()
        except GatewayError as error:
            if not is_passing(error):
                raise
        await pause(attempt, clock)
    return await call()


async def settle_all(
    port: ConsumerPort, settlements: Sequence[Settlement], *, chunk: int, clock: Clock
) -> Sequence[Refusal]:
    """Settle everything, `chunk` at a time, and return what was not settled, with the reason.

    What the broker refuses for now is asked for again. When nothing of a chunk gets through, the
    rest is not tried: the broker is away.
    """
    unsettled: list[Refusal] = []
    for start in range(0, len(settlements), chunk):
        part = settlements[start : start + chunk]
        refusals = await _settle(port, part, clock)
        unsettled += refusals
        if len(refusals) == len(part) and not any(each.is_final for each in refusals):
            error = refusals[0].error
            unsettled += [
                Refusal(each.delivery, error) for each in settlements[start + len(part) :]
            ]
            break
    return unsettled


async def _settle(
    port: ConsumerPort, settlements: Sequence[Settlement], clock: Clock
) -> list[Refusal]:
    gone: list[Refusal] = []
    pending = list(settlements)
    for attempt in range(1, TRIES + 1):
        refusals = await _asked(port, pending)
        gone += [each for each in refusals if not is_passing(each.error)]
        waiting = {each.delivery: each for each in refusals if is_passing(each.error)}
        if not waiting:
            return gone
        if attempt == TRIES:
            return [*gone, *waiting.values()]
        pending = [each for each in pending if each.delivery in waiting]
        await pause(attempt, clock)
    return gone


async def _asked(port: ConsumerPort, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
    try:
        return await port.settle(settlements)
    except GatewayError as error:
        return [Refusal(each.delivery, error) for each in settlements]
