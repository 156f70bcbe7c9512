"""R64: how old a message may be, and what its time is worth."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from pump.crypto import (
    AuthenticationFailed,
    Encryption,
    KeyRing,
    MessageExpired,
    MessageFromFuture,
)
from pump.testing.virtual_clock import EPOCH_S, VirtualClock

from .desk import (
    MESSAGE,
    OpenDesk,
)


@pytest.mark.parametrize(
    ("minutes", "is_fresh"), [(2, True), (5, True), (5.01, False), (10, False)]
)
async def test_when_a_message_is_older_than_max_age_then_it_has_expired(
    desk: OpenDesk, ring: KeyRing, clock: VirtualClock, minutes: float, is_fresh: bool
) -> None:
    """R64."""
    max_age = timedelta(minutes=5)
    open_desk = await desk(Encryption(ring, max_age=max_age, clock=clock))
    sealed = await open_desk.seal()
    await clock.advance(minutes * 60)

    if is_fresh:
        assert await open_desk.open(sealed) == MESSAGE
        return
    with pytest.raises(MessageExpired, match=r"2025-06-15T15:06:40\+00:00.*0:05:00") as caught:
        await open_desk.open(sealed)
    assert caught.value.encrypted_at.timestamp() == EPOCH_S
    assert caught.value.max_age == max_age


async def test_when_a_message_has_expired_then_nothing_of_it_is_decrypted(
    desk: OpenDesk, ring: KeyRing, clock: VirtualClock
) -> None:
    """R64: its body is beyond opening, and nobody notices."""
    open_desk = await desk(Encryption(ring, max_age=timedelta(minutes=5), clock=clock))
    sealed = await open_desk.seal()
    await clock.advance(600)

    with pytest.raises(MessageExpired):
        await open_desk.open(replace(sealed, body=sealed.body[:-1] + b"!"))


async def test_when_an_expired_message_is_made_to_look_fresh_then_its_seal_is_broken(
    desk: OpenDesk, ring: KeyRing, clock: VirtualClock
) -> None:
    """R63, R64: the time is believed only where that refuses the message."""
    open_desk = await desk(Encryption(ring, max_age=timedelta(minutes=5), clock=clock))
    sealed = await open_desk.seal()
    await clock.advance(600)
    now = int(clock.time_s() * 1000).to_bytes(8)

    with pytest.raises(AuthenticationFailed):
        await open_desk.open(replace(sealed, body=sealed.body[:14] + now + sealed.body[22:]))


async def test_when_max_age_is_off_then_a_message_never_expires(
    desk: OpenDesk, ring: KeyRing, clock: VirtualClock
) -> None:
    """R64: off by default."""
    open_desk = await desk(Encryption(ring, clock=clock))
    sealed = await open_desk.seal()

    await clock.advance(10 * 365 * 86_400)

    assert await open_desk.open(sealed) == MESSAGE


@pytest.mark.parametrize(("ahead_s", "is_accepted"), [(60, True), (300, True), (301, False)])
async def test_when_the_senders_clock_runs_ahead_then_so_much_of_it_is_tolerated(
    desk: OpenDesk, ring: KeyRing, clock: VirtualClock, ahead_s: float, is_accepted: bool
) -> None:
    """R64: a message from the future would stay fresh for longer than it may."""
    sender_clock = VirtualClock()
    await sender_clock.advance(ahead_s)
    sealed = await (await desk(Encryption(ring, clock=sender_clock))).seal()
    receiver = await desk(Encryption(ring, max_age=timedelta(minutes=5), clock=clock))

    if is_accepted:
        assert await receiver.open(sealed) == MESSAGE
        return
    with pytest.raises(MessageFromFuture, match="clock") as caught:
        await receiver.open(sealed)
    assert caught.value.encrypted_at.timestamp() == EPOCH_S + ahead_s


async def test_when_a_time_is_beyond_every_calendar_then_it_is_refused_like_another(
    desk: OpenDesk, ring: KeyRing
) -> None:
    open_desk = await desk(Encryption(ring, max_age=timedelta(minutes=5)))
    sealed = await open_desk.seal()
    body = sealed.body[:14] + b"\xff" * 8 + sealed.body[22:]

    with pytest.raises(MessageFromFuture, match="9999"):
        await open_desk.open(replace(sealed, body=body))
