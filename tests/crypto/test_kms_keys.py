"""Data keys: when KMS is asked, when it is not, and what its answers mean. On a KMS of our own."""

from __future__ import annotations

import asyncio
import pickle
from datetime import timedelta
from typing import Any

import pytest

from pump.crypto import (
    Encryption,
    Key,
    KeyUnavailable,
    KmsKeys,
    KmsOptions,
)
from pump.errors import ConfigurationError
from pump.observability.telemetry import Counters
from pump.testing.virtual_clock import VirtualClock

from .desk import MESSAGE, OpenDesk
from .fake_kms import FakeKms, Make, Refused


async def test_when_many_messages_are_sealed_then_kms_is_asked_once(
    fake: FakeKms, make: Make, desk: OpenDesk
) -> None:
    open_desk = await desk(Encryption(make()))

    sealed = await asyncio.gather(*(open_desk.seal() for _ in range(50)))

    assert [await open_desk.open(each) for each in sealed] == [MESSAGE] * 50
    assert fake.calls == ["generate", "decrypt"]


async def test_when_an_app_opens_then_kms_is_not_asked_yet(
    fake: FakeKms, make: Make, desk: OpenDesk
) -> None:
    """A receiver needs no right to make data keys, nor a sender one to unwrap them."""
    await desk(Encryption(make()))

    assert fake.calls == []


async def test_when_a_data_key_is_old_then_the_next_one_is_asked_for_and_it_is_wiped(
    make: Make, clock: VirtualClock
) -> None:
    """R69."""
    keys = make(max_age=timedelta(minutes=5))
    await keys.load()
    first = await keys.active()

    await clock.advance(299)
    assert await keys.active() is first
    await clock.advance(1)
    second = await keys.active()

    assert second.id != first.id
    assert first.is_wiped


async def test_when_a_data_key_has_sealed_its_share_then_the_next_one_is_asked_for(
    fake: FakeKms, make: Make, desk: OpenDesk
) -> None:
    open_desk = await desk(Encryption(make(max_messages=10)))

    sealed = [await open_desk.seal() for _ in range(25)]

    assert fake.calls == ["generate"] * 3
    assert [await open_desk.open(each) for each in sealed] == [MESSAGE] * 25


async def test_when_one_key_is_wanted_by_many_at_once_then_it_is_unwrapped_once(
    fake: FakeKms, make: Make
) -> None:
    keys = make()
    await keys.load()
    wrapped = (await keys.active()).id
    fake.gate = asyncio.Event()

    finding = [asyncio.create_task(keys.find(wrapped)) for _ in range(20)]
    await asyncio.to_thread(int)
    finding[0].cancel()
    fake.gate.set()
    found = await asyncio.gather(*finding, return_exceptions=True)

    assert fake.calls == ["generate", "decrypt"]
    assert isinstance(found[0], asyncio.CancelledError)
    assert len(set(map(id, found[1:]))) == 1
    assert isinstance(found[1], Key)


async def test_when_more_keys_are_unwrapped_than_are_kept_then_the_least_used_go(
    fake: FakeKms, make: Make
) -> None:
    """R69: bounded, and wiped."""
    keys = make(max_unwrapped=2, max_messages=1)
    await keys.load()
    ids = []
    for _ in range(3):
        key = await keys.active()
        ids.append(key.id)
        key.encrypted_count = 1
    fake.calls.clear()

    first, second = [await keys.find(key_id) for key_id in ids[:2]]
    await keys.find(ids[0])
    await keys.find(ids[2])

    assert not first.is_wiped
    assert second.is_wiped
    assert fake.calls == ["decrypt"] * 3
    await keys.find(ids[1])
    assert fake.calls == ["decrypt"] * 4


async def test_when_many_keys_pass_through_a_small_cache_at_once_then_none_is_given_out_wiped(
    make: Make,
) -> None:
    keys = make(max_unwrapped=1, max_messages=1)
    await keys.load()
    ids = []
    for _ in range(20):
        key = await keys.active()
        ids.append(key.id)
        key.encrypted_count = 1

    async def use(key_id: str) -> bool:
        return (await keys.find(key_id)).is_wiped

    assert not any(await asyncio.gather(*(use(key_id) for key_id in ids * 3)))


async def test_when_an_unwrapped_key_was_kept_for_long_then_kms_is_asked_again(
    fake: FakeKms, make: Make, clock: VirtualClock
) -> None:
    """A key that was disabled is noticed some day."""
    keys = make(max_unwrapped_age=timedelta(hours=1))
    await keys.load()
    wrapped = (await keys.active()).id
    first = await keys.find(wrapped)

    await clock.advance(3_599)
    assert await keys.find(wrapped) is first
    await clock.advance(1)
    second = await keys.find(wrapped)
    assert first.is_wiped
    assert not second.is_wiped
    await clock.advance(3_600)
    fake.error = Refused("DisabledException")

    with pytest.raises(KeyUnavailable, match="DisabledException"):
        await keys.find(wrapped)


async def test_when_the_app_closes_then_every_data_key_is_wiped_and_the_client_closed(
    fake: FakeKms, make: Make
) -> None:
    """R69."""
    keys = make()
    await keys.load()
    sealing = await keys.active()
    opening = await keys.find(sealing.id)

    await keys.aclose()

    assert sealing.is_wiped
    assert opening.is_wiped
    assert fake.is_closed
    with pytest.raises(KeyUnavailable, match="open the app first"):
        await keys.active()


async def test_when_two_apps_share_kms_keys_then_the_last_to_close_wipes_them(
    make: Make, desk: OpenDesk
) -> None:
    """R69."""
    keys = make()
    one, two = Encryption(keys), await desk(Encryption(keys))
    await one.start(Counters(), None)
    sealed = await one.encrypt(MESSAGE, "orders")

    await one.aclose()

    assert await two.open(sealed) == MESSAGE
    assert await two.open(await two.seal()) == MESSAGE


async def test_when_the_app_closes_while_a_key_is_unwrapped_then_who_waits_is_told(
    fake: FakeKms, make: Make
) -> None:
    keys = make()
    await keys.load()
    wrapped = (await keys.active()).id
    fake.gate = asyncio.Event()
    finding = asyncio.create_task(keys.find(wrapped))
    await asyncio.to_thread(int)

    await keys.aclose()

    with pytest.raises(KeyUnavailable, match="closed"):
        await finding


async def test_when_the_app_closes_while_a_data_key_is_made_then_nobody_is_left_with_it(
    fake: FakeKms, make: Make
) -> None:
    """R69: it would not be wiped any more."""
    keys = make()
    await keys.load()
    fake.gate = asyncio.Event()
    sealing = asyncio.create_task(keys.active())
    await asyncio.to_thread(int)
    assert fake.calls == ["generate"]

    await keys.aclose()
    fake.gate.set()

    with pytest.raises(KeyUnavailable, match="closed"):
        await sealing
    assert keys._active is None


def test_when_kms_keys_are_pickled_then_only_their_names_are() -> None:
    """R69."""
    keys = KmsKeys("alias/orders", also_open=["alias/old"], options=KmsOptions(region="eu-west-1"))

    copy = pickle.loads(pickle.dumps(keys))

    assert repr(copy) == "KmsKeys('alias/orders')"
    assert copy._key_names == ("alias/orders", "alias/old")
    assert copy._options == keys._options


unchecked: Any = KmsKeys
unchecked_options: Any = KmsOptions


@pytest.mark.parametrize(
    ("make_it", "field"),
    [
        (lambda: unchecked(""), "KmsKeys.key"),
        (lambda: unchecked(None), "KmsKeys.key"),
        (lambda: unchecked("a", also_open="b"), "KmsKeys.key"),
        (lambda: unchecked("a", also_open=["b", ""]), "KmsKeys.key"),
        (lambda: unchecked_options(max_age=timedelta(0)), "KmsOptions.max_age"),
        (lambda: unchecked_options(max_unwrapped_age=5), "KmsOptions.max_unwrapped_age"),
        (lambda: unchecked_options(max_messages=0), "KmsOptions.max_messages"),
        (lambda: unchecked_options(max_messages=2**32 + 1), "KmsOptions.max_messages"),
        (lambda: unchecked_options(max_unwrapped=0), "KmsOptions.max_unwrapped"),
        (lambda: unchecked_options(context={"pumphouse": "x"}), "KmsOptions.context"),
    ],
)
def test_when_a_setting_cannot_work_then_the_error_names_it(make_it: Any, field: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make_it()

    assert caught.value.field == field
