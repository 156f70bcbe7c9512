"""Keys and rings: what they take, how they turn over, and how they end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import MutableMapping
from typing import Any

import pytest

from pump.crypto import Encryption, Key, KeyNotFound, KeyRing, KeyUnavailable, aes
from pump.errors import ConfigurationError
from pump.message import Message
from pump.observability.telemetry import Counters

from .desk import MESSAGE, OpenDesk, delivered

MATERIAL = bytes(range(100, 132))
unchecked_key: Any = Key
unchecked_ring: Any = KeyRing


@pytest.mark.parametrize("size", [0, 1, 16, 24, 31, 33, 64])
def test_when_a_key_has_another_length_then_the_error_says_so_and_not_what_it_is(
    size: int,
) -> None:
    with pytest.raises(ConfigurationError, match=f"32 bytes, and this has {size}") as caught:
        Key("2026-01", b"\x07" * size)

    assert caught.value.field == "Key.material"
    assert "\\x07" not in str(caught.value)


@pytest.mark.parametrize("material", ["text of thirty-two characters ..", 32, None, [1] * 32])
def test_when_a_key_is_not_made_of_bytes_then_the_error_says_so_and_not_what_it_is(
    material: object,
) -> None:
    with pytest.raises(ConfigurationError, match=r"Key\.material='…': give it as 32 bytes"):
        unchecked_key("2026-01", material)


@pytest.mark.parametrize("key_id", ["", None, b"k", 7, "\ud800", "x" * 65_536])
def test_when_a_key_has_no_fit_id_then_the_error_says_so(key_id: object) -> None:
    with pytest.raises(ConfigurationError, match=r"Key\.id='…'"):
        unchecked_key(key_id, MATERIAL)


def test_when_keys_are_generated_then_no_two_are_the_same() -> None:
    one, two = Key.generate("a"), Key.generate("b")

    assert not one.has_material_of(two)
    assert one.has_material_of(one)


@pytest.mark.parametrize("material", [bytearray(MATERIAL), memoryview(MATERIAL), MATERIAL])
def test_when_a_key_is_made_of_any_bytes_then_it_keeps_a_copy(material: Any) -> None:
    key = Key("k", material)

    key.wipe()

    assert bytes(material) == MATERIAL


def test_when_a_key_is_wiped_then_its_bytes_are_zero_and_it_seals_no_more() -> None:
    """R69."""
    key = Key("2026-01", MATERIAL)
    ours = key._material
    aes.encrypt(key, b"x", nonce=b"n" * 12, associated=b"")

    key.wipe()
    key.wipe()

    assert ours == bytes(32)
    assert key.is_wiped
    with pytest.raises(KeyUnavailable, match="wiped"):
        aes.encrypt(key, b"x", nonce=b"n" * 12, associated=b"")


def test_when_a_ring_has_two_keys_of_one_id_then_it_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="two keys of one id"):
        KeyRing(Key.generate("a"), retired=[Key.generate("b"), Key.generate("a")])


def test_when_a_ring_is_given_bytes_then_they_are_not_shown() -> None:
    with pytest.raises(ConfigurationError, match="give it keys") as caught:
        unchecked_ring(MATERIAL)

    assert "defg" not in str(caught.value)


async def test_when_a_ring_is_asked_then_active_and_retired_keys_open() -> None:
    """R65."""
    new, old = Key.generate("new"), Key.generate("old")
    ring = KeyRing(new, retired=[old])

    assert await ring.active() is new
    assert [await ring.find("new"), await ring.find("old")] == [new, old]
    assert (ring.active_id, ring.ids, ring.keys) == ("new", ("new", "old"), (new, old))


async def test_when_a_key_is_added_then_it_opens_and_does_not_seal_yet() -> None:
    """R65: receivers first."""
    ring, new = KeyRing(Key.generate("old")), Key.generate("new")

    ring.add(new)

    assert await ring.find("new") is new
    assert (await ring.active()).id == "old"


async def test_when_a_retired_key_is_removed_then_it_is_wiped_and_unknown() -> None:
    """R65, R69."""
    old = Key.generate("old")
    ring = KeyRing(Key.generate("new"), retired=[old])

    ring.remove("old")
    ring.remove("never there")

    assert old.is_wiped
    with pytest.raises(KeyNotFound):
        await ring.find("old")


def test_when_the_active_key_is_removed_then_that_is_refused() -> None:
    ring = KeyRing(Key.generate("new"))

    with pytest.raises(ConfigurationError, match="rotate to another one first"):
        ring.remove("new")


def test_when_another_key_takes_a_known_id_then_that_is_refused() -> None:
    ring = KeyRing(Key.generate("a"))

    with pytest.raises(ConfigurationError, match="use a new id"):
        ring.rotate(Key.generate("a"))


async def test_when_a_ring_is_closed_then_its_keys_are_wiped_and_it_says_so() -> None:
    """R69."""
    key = Key.generate("a")
    ring = KeyRing(key)
    encryption = Encryption(ring)
    await encryption.start(Counters(), None)

    await encryption.aclose()
    await encryption.aclose()

    assert key.is_wiped
    with pytest.raises(ConfigurationError, match="wipe_on_close=False"):
        await encryption.start(Counters(), None)


async def test_when_a_ring_is_shared_then_the_last_to_close_wipes_it() -> None:
    """R69."""
    ring = KeyRing(Key.generate("a"))
    one, two = Encryption(ring), Encryption(ring)
    await one.start(Counters(), None)
    await two.start(Counters(), None)

    await one.aclose()

    sealed = await two.encrypt(MESSAGE, "orders")
    assert await two.decrypt(delivered(sealed)) == MESSAGE
    await two.aclose()
    assert ring.keys[0].is_wiped


async def test_when_a_ring_is_to_be_kept_then_closing_leaves_it_to_its_owner() -> None:
    ring = KeyRing(Key.generate("a"), wipe_on_close=False)
    encryption = Encryption(ring)

    for _ in range(2):
        await encryption.start(Counters(), None)
        await encryption.encrypt(MESSAGE, "orders")
        await encryption.aclose()

    ring.wipe()
    assert ring.keys[0].is_wiped


async def test_when_keys_turn_over_while_messages_are_sealed_then_every_message_opens(
    desk: OpenDesk, ring: KeyRing
) -> None:
    """R65: no interruption, though another thread rotates at every chance."""
    open_desk = await desk(Encryption(ring))
    is_over = threading.Event()
    rotations = 0

    def rotate() -> None:
        nonlocal rotations
        while not is_over.wait(0.0001):
            rotations += 1
            ring.rotate(Key.generate(f"key-{rotations}"))

    async def exchange(number: int) -> str:
        message = Message(body=str(number).encode())
        sealed = await open_desk.seal(message)
        await asyncio.to_thread(int)
        assert await open_desk.open(sealed) == message
        return sealed.body[7 : 7 + sealed.body[6]].decode()

    rotating = threading.Thread(target=rotate)
    rotating.start()
    try:
        used = await asyncio.gather(*(exchange(number) for number in range(300)))
    finally:
        is_over.set()
        rotating.join()

    assert rotations > 0
    assert set(used) <= set(ring.ids)


def test_when_a_key_has_sealed_very_many_messages_then_that_is_warned_of_once(
    log: list[MutableMapping[str, Any]],
) -> None:
    key = Key.generate("2026-01")
    key.encrypted_count = aes.WARN_AT - 2

    for _ in range(4):
        aes.encrypt(key, b"x", nonce=aes.new_nonce(), associated=b"")

    assert [(line["event"], line["log_level"]) for line in log] == [("key.worn", "warning")]
    assert "rotate" in log[0]["remedy"]
    assert aes.WARN_AT < aes.MAX_MESSAGES == 2**32
