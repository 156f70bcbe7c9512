"""Nonce tracking: a copy is refused, a redelivery is not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pump.crypto import (
    AuthenticationFailed,
    Encryption,
    Key,
    KeyRing,
    MemoryNonces,
    NonceTracking,
    SqliteNonces,
)
from pump.stores.nonces import NonceStore
from pump.testing.virtual_clock import VirtualClock

from .desk import (
    MESSAGE,
    Desk,
    OpenDesk,
    accept,
    changed,
    delivered,
    refuse,
)


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[NonceStore]:
    path = tmp_path / "nonces.db"
    made: NonceStore = MemoryNonces() if request.param == "memory" else SqliteNonces(path)
    yield made
    await made.aclose()


@pytest.fixture
async def guarded(desk: OpenDesk, ring: KeyRing, store: NonceStore, clock: VirtualClock) -> Desk:
    return await desk(Encryption(ring, nonces=NonceTracking(store=store), clock=clock))


async def test_when_tracking_is_off_then_one_envelope_is_accepted_as_often_as_it_comes(
    desk: OpenDesk, ring: KeyRing
) -> None:
    """R67: off by default."""
    open_desk = await desk(Encryption(ring))
    sealed = await open_desk.seal()

    for number in range(3):
        delivery = await accept(open_desk, sealed, broker_id=number)
        open_desk.encryption.settled(delivery, is_handled=True)


async def test_when_a_broker_message_comes_again_then_it_is_accepted_again(
    guarded: Desk,
) -> None:
    """T6: at least once is the rule; a deferred message keeps its claim."""
    sealed = await guarded.seal()

    for attempt in range(1, 6):
        await accept(guarded, sealed, broker_id="b-1", attempt=attempt)


@pytest.mark.parametrize("ids", [("b-1", "b-2"), (0, 1), (1, 0), ("", "b"), (None, 0)])
async def test_when_an_envelope_arrives_on_another_broker_message_then_it_is_refused(
    guarded: Desk, ids: tuple[Any, Any]
) -> None:
    """R67, T6."""
    first, second = ids
    sealed = await guarded.seal()
    await accept(guarded, sealed, broker_id=first)

    await refuse(guarded, sealed, broker_id=second)

    await accept(guarded, sealed, broker_id=first, attempt=2)


async def test_when_a_copy_is_sent_to_another_queue_then_it_is_refused_there(
    guarded: Desk,
) -> None:
    """T6: though that queue numbers its messages alike."""
    sealed = await guarded.seal()
    await accept(guarded, sealed, broker_id=7, queue="orders")

    await refuse(guarded, sealed, broker_id=7, queue="others")


async def test_when_a_message_was_handled_then_it_is_refused_on_any_broker_message(
    guarded: Desk,
) -> None:
    """R67, T6: at once, before the completion has been written."""
    sealed = await guarded.seal()
    delivery = await accept(guarded, sealed, broker_id="b-1")

    guarded.encryption.settled(delivery, is_handled=True)

    await refuse(guarded, sealed, broker_id="b-2")
    await refuse(guarded, sealed, broker_id="b-1", attempt=2)


async def test_when_a_message_was_routed_away_then_a_redrive_may_bring_it_back(
    guarded: Desk,
) -> None:
    """T6: at once, before the release has been written."""
    sealed = await guarded.seal()
    delivery = await accept(guarded, sealed, broker_id="b-1")

    guarded.encryption.settled(delivery, is_handled=False)

    redriven = await accept(guarded, sealed, broker_id="b-9")
    guarded.encryption.settled(redriven, is_handled=True)
    await refuse(guarded, sealed, broker_id="b-9", attempt=2)


async def test_when_a_refused_copy_is_routed_away_then_the_original_keeps_its_nonce(
    guarded: Desk,
) -> None:
    """T6."""
    sealed = await guarded.seal()
    original = await accept(guarded, sealed, broker_id="b-1")
    copy = await refuse(guarded, sealed, broker_id="b-2")

    guarded.encryption.settled(copy, is_handled=False)
    await refuse(guarded, sealed, broker_id="b-3")
    guarded.encryption.settled(original, is_handled=True)

    late = await refuse(guarded, sealed, broker_id="b-1", attempt=2)
    guarded.encryption.settled(late, is_handled=False)
    await refuse(guarded, sealed, broker_id="b-4")


async def test_when_one_of_two_deliveries_handled_it_then_the_others_end_does_not_undo_that(
    guarded: Desk,
) -> None:
    """T6: a lease was lost, and the message was in two hands at once."""
    sealed = await guarded.seal()
    one = await accept(guarded, sealed, broker_id="b-1")
    two = await accept(guarded, sealed, broker_id="b-1", attempt=2)

    guarded.encryption.settled(one, is_handled=True)
    guarded.encryption.settled(two, is_handled=False)

    await refuse(guarded, sealed, broker_id="b-2")
    await refuse(guarded, sealed, broker_id="b-1", attempt=3)


async def test_when_a_forged_copy_comes_first_then_it_uses_up_nothing(guarded: Desk) -> None:
    """T6: nonces are looked at after the seal."""
    sealed = await guarded.seal()
    forged = changed(sealed, body=sealed.body[:-1] + b"!")

    with pytest.raises(AuthenticationFailed):
        await guarded.open(forged, broker_id="b-1")

    await accept(guarded, sealed, broker_id="b-2")


async def test_when_a_nonce_is_of_another_key_then_it_is_another_nonce(
    guarded: Desk, ring: KeyRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pump.crypto import aes

    monkeypatch.setattr(aes, "new_nonce", lambda: b"same nonce !")
    one = await guarded.seal()
    ring.rotate(Key.generate("2026-02"))
    two = await guarded.seal()

    await accept(guarded, one, broker_id="b-1")
    await accept(guarded, two, broker_id="b-2")


async def test_when_the_ttl_is_over_then_the_nonce_is_forgotten(
    guarded: Desk, clock: VirtualClock
) -> None:
    """R67: TTL, through the clock."""
    sealed = await guarded.seal()
    delivery = await accept(guarded, sealed, broker_id="b-1")
    guarded.encryption.settled(delivery, is_handled=True)
    await clock.advance(86_399)
    await refuse(guarded, sealed, broker_id="b-2")

    await clock.advance(1)

    await accept(guarded, sealed, broker_id="b-2")


async def test_when_freshness_is_checked_too_then_a_replay_is_never_accepted(
    desk: OpenDesk, ring: KeyRing, store: NonceStore, clock: VirtualClock
) -> None:
    """R64, R67: what is forgotten has expired before."""
    open_desk = await desk(
        Encryption(
            ring,
            max_age=timedelta(minutes=10),
            nonces=NonceTracking(store=store),
            clock=clock,
        )
    )
    sealed = await open_desk.seal()
    delivery = await accept(open_desk, sealed, broker_id="b-1")
    open_desk.encryption.settled(delivery, is_handled=True)

    for _ in range(40):
        await clock.advance(60)
        with pytest.raises(Exception, match=r"seen before|older than"):
            await open_desk.open(sealed, broker_id="b-2")


async def test_when_tracking_is_strict_then_any_second_sight_is_refused(
    desk: OpenDesk, ring: KeyRing, store: NonceStore
) -> None:
    """R67, T6: redeliveries and redrives too."""
    open_desk = await desk(Encryption(ring, nonces=NonceTracking(store=store, strict=True)))
    sealed = await open_desk.seal()
    delivery = await accept(open_desk, sealed, broker_id="b-1")

    await refuse(open_desk, sealed, broker_id="b-1", attempt=2)
    open_desk.encryption.settled(delivery, is_handled=False)
    await refuse(open_desk, sealed, broker_id="b-1", attempt=3)


@pytest.mark.parametrize("strict", [True, False])
async def test_when_a_delivery_is_opened_twice_by_hand_then_that_is_one_sight(
    desk: OpenDesk, ring: KeyRing, store: NonceStore, strict: bool
) -> None:
    open_desk = await desk(Encryption(ring, nonces=NonceTracking(store=store, strict=strict)))
    delivery = delivered(await open_desk.seal(), broker_id="b-1")

    opened = [await open_desk.encryption.decrypt(delivery) for _ in range(2)]

    assert opened == [MESSAGE, MESSAGE]


async def test_when_a_gateway_has_no_broker_ids_then_a_handled_message_is_still_refused(
    guarded: Desk,
) -> None:
    """T6: before it was handled, a copy on the same queue cannot be told from a redelivery."""
    sealed = await guarded.seal()
    delivery = await accept(guarded, sealed)
    await accept(guarded, sealed)
    await refuse(guarded, sealed, queue="others")

    guarded.encryption.settled(delivery, is_handled=True)

    await refuse(guarded, sealed)


async def test_when_an_id_holds_half_a_character_then_its_nonce_is_tracked_all_the_same(
    guarded: Desk,
) -> None:
    message = changed(MESSAGE, id="m\ud83d")
    delivery = delivered(await guarded.seal(message))

    assert await guarded.encryption.decrypt(delivery) == message


async def test_when_a_plain_or_unopened_delivery_is_settled_then_nothing_is_written(
    guarded: Desk,
) -> None:
    sealed = await guarded.seal()
    delivery = delivered(sealed, broker_id="b-1")

    guarded.encryption.settled(delivery, is_handled=True)

    await accept(guarded, sealed, broker_id="b-1")
