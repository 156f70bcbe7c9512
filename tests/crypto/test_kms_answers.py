"""What the answers of KMS mean for a message."""

from __future__ import annotations

import asyncio
import base64

import pytest

from pump.crypto import (
    KeyNotFound,
    KeyUnavailable,
)
from pump.decide import decide
from pump.errors import ConfigurationError
from pump.outcome import Defer
from pump.subscription import retry

from .fake_kms import FakeKms, Make, Refused


@pytest.mark.parametrize(
    "code",
    [
        "ThrottlingException",
        "DependencyTimeoutException",
        "KMSInternalException",
        "KMSInvalidStateException",
        "DisabledException",
        "AccessDeniedException",
        "ExpiredTokenException",
        "SomethingNew",
    ],
)
async def test_when_kms_may_change_its_mind_then_the_message_is_retried(
    fake: FakeKms, make: Make, code: str
) -> None:
    keys = make()
    await keys.load()
    wrapped = (await keys.active()).id
    fake.error = Refused(code)

    with pytest.raises(KeyUnavailable, match=code) as caught:
        await keys.find(wrapped)

    assert isinstance(decide(caught.value, attempt=1, strategy=retry(max_retries=3)), Defer)
    assert "secret words" not in str(caught.value)
    fake.error = None
    assert (await keys.find(wrapped)).id == wrapped


async def test_when_many_seal_while_kms_does_not_answer_then_all_are_told_after_one_call(
    fake: FakeKms, make: Make
) -> None:
    """One after the other, the last would wait for as many timeouts as there are senders."""
    keys = make()
    await keys.load()
    fake.gate, fake.error = asyncio.Event(), TimeoutError()

    sealing = [asyncio.create_task(keys.active()) for _ in range(20)]
    await asyncio.to_thread(int)
    sealing[0].cancel()
    fake.gate.set()
    answers = await asyncio.gather(*sealing, return_exceptions=True)

    assert isinstance(answers[0], asyncio.CancelledError)
    assert {type(each) for each in answers[1:]} == {KeyUnavailable}
    assert fake.calls == ["generate"]
    fake.error = None
    assert (await keys.active()).id.startswith("kms:")


@pytest.mark.parametrize("error", [TimeoutError(), OSError("no route"), RuntimeError("closed")])
async def test_when_kms_cannot_be_reached_then_seal_and_open_say_so_and_recover(
    fake: FakeKms, make: Make, error: Exception
) -> None:
    keys = make()
    await keys.load()
    fake.error = error

    with pytest.raises(KeyUnavailable, match=f"KMS: {type(error).__name__}"):
        await keys.active()

    fake.error = None
    assert (await keys.active()).id.startswith("kms:")


@pytest.mark.parametrize(
    "code",
    [
        "InvalidCiphertextException",
        "InvalidKeyUsageException",
        "NotFoundException",
        "IncorrectKeyException",
        "com.amazonaws.kms#InvalidCiphertextException",
    ],
)
async def test_when_kms_refuses_a_key_for_good_then_it_is_not_found(
    fake: FakeKms, make: Make, code: str
) -> None:
    """R66."""
    keys = make()
    await keys.load()
    wrapped = (await keys.active()).id
    fake.error = Refused(code)

    with pytest.raises(KeyNotFound):
        await keys.find(wrapped)


@pytest.mark.parametrize(
    "code", ["NotFoundException", "AccessDeniedException", "DisabledException"]
)
async def test_when_kms_makes_no_data_key_then_the_sender_is_told_what_to_set_up(
    fake: FakeKms, make: Make, code: str
) -> None:
    keys = make()
    await keys.load()
    fake.error = Refused(code)

    with pytest.raises(ConfigurationError, match=rf"alias/orders.*{code}.*GenerateDataKey"):
        await keys.active()


@pytest.mark.parametrize(
    "key_id",
    [
        "2026-01",
        "kms",
        "kms:",
        "kms:not base64",
        "kms:é",
        "KMS:d3JhcHBlZC0w",
        "kms:" + base64.b64encode(b"x" * 6_145).decode(),
    ],
)
async def test_when_a_key_id_is_not_kms_own_then_kms_is_not_bothered(
    fake: FakeKms, make: Make, key_id: str
) -> None:
    """R66."""
    keys = make()
    await keys.load()

    with pytest.raises(KeyNotFound):
        await keys.find(key_id)

    assert fake.calls == []


async def test_when_a_kms_key_was_replaced_then_both_are_tried_in_turn(
    fake: FakeKms, make: Make
) -> None:
    """R65."""
    old, new, stranger = make(key="old"), make("old", key="new"), make(key="new")
    for keys in (old, new, stranger):
        await keys.load()
    wrapped, newer = (await old.active()).id, (await new.active()).id

    assert (await new.find(wrapped)).id == wrapped
    assert (await new.find(newer)).id == newer
    with pytest.raises(KeyNotFound):
        await stranger.find(wrapped)


async def test_when_a_data_key_has_another_length_then_it_is_not_used(
    fake: FakeKms, make: Make
) -> None:
    keys = make()
    await keys.load()
    wrapped = (await keys.active()).id
    fake.made = {name: (*rest, b"short") for name, (*rest, _) in fake.made.items()}  # type: ignore[misc]

    with pytest.raises(KeyNotFound):
        await keys.find(wrapped)
