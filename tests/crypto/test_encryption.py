"""Encryption: what goes out sealed comes back as it was, and what is not acceptable does not."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pump.crypto import (
    AuthenticationFailed,
    Encryption,
    Key,
    KeyFile,
    KeyNotFound,
    KeyRing,
    MalformedEnvelope,
    NonceTracking,
    UnsupportedVersion,
)
from pump.decide import decide
from pump.errors import ConfigurationError, CryptoError
from pump.message import Message
from pump.observability.telemetry import Counters
from pump.outcome import Reject, RejectionReason
from pump.subscription import retry

from .desk import (
    BODY,
    MESSAGE,
    Log,
    OpenDesk,
    counts,
    delivered,
    lines,
)
from .written_keys import A, entry, write


async def test_when_a_message_is_sealed_and_opened_then_it_is_what_it_was(
    desk: OpenDesk, ring: KeyRing
) -> None:
    """R62."""
    open_desk = await desk(Encryption(ring))

    sealed = await open_desk.seal()
    opened = await open_desk.open(sealed)

    assert sealed.body.startswith(b"QRE1\x02")
    assert BODY not in sealed.body
    assert opened == MESSAGE


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 1_024, 300_000])
async def test_when_a_body_of_any_size_is_sealed_then_it_comes_back(
    desk: OpenDesk, ring: KeyRing, size: int
) -> None:
    """R62."""
    open_desk = await desk(Encryption(ring))
    message = Message(body=b"\xff" * size)

    assert await open_desk.open(await open_desk.seal(message)) == message


async def test_when_a_message_is_sealed_then_only_its_body_changes(
    desk: OpenDesk, ring: KeyRing
) -> None:
    """R68: a field that is added to Message later must travel as well."""
    open_desk = await desk(Encryption(ring))

    sealed = await open_desk.seal()

    changed = {
        name
        for name in Message.__struct_fields__
        if getattr(sealed, name) != getattr(MESSAGE, name)
    }
    assert changed == {"body"}


async def test_when_one_message_is_sealed_twice_then_the_bodies_share_no_nonce(
    desk: OpenDesk, ring: KeyRing
) -> None:
    open_desk = await desk(Encryption(ring))

    bodies = [(await open_desk.seal()).body for _ in range(500)]

    assert len({body[22:34] for body in bodies}) == 500


async def test_when_a_key_is_rotated_then_the_new_one_seals_and_the_old_one_still_opens(
    desk: OpenDesk, ring: KeyRing
) -> None:
    """R65."""
    open_desk = await desk(Encryption(ring))
    before = await open_desk.seal()

    ring.rotate(Key.generate("2026-02"))
    after = await open_desk.seal()

    assert (before.body[7:14], after.body[7:14]) == (b"2026-01", b"2026-02")
    assert await open_desk.open(before) == await open_desk.open(after) == MESSAGE


async def test_when_the_key_is_unknown_then_the_error_names_it_and_hints_at_the_rotation(
    desk: OpenDesk, ring: KeyRing
) -> None:
    """R66."""
    sealed = await (await desk(Encryption(ring))).seal()
    stranger = await desk(Encryption(KeyRing(Key.generate("other"))))

    with pytest.raises(KeyNotFound, match=r"'2026-01'.*rotation.*key provider") as caught:
        await stranger.open(sealed)

    assert caught.value.key_id == "2026-01"
    assert not isinstance(caught.value, AuthenticationFailed)


async def test_when_two_keys_share_an_id_then_that_is_no_unknown_key(
    desk: OpenDesk, ring: KeyRing
) -> None:
    """R63, R66."""
    sealed = await (await desk(Encryption(ring))).seal()
    stranger = await desk(Encryption(KeyRing(Key.generate("2026-01"))))

    with pytest.raises(AuthenticationFailed, match="2026-01"):
        await stranger.open(sealed)


async def test_when_the_version_is_unknown_then_the_message_is_not_opened(
    desk: OpenDesk, ring: KeyRing
) -> None:
    """R72."""
    open_desk = await desk(Encryption(ring))
    sealed = await open_desk.seal()

    with pytest.raises(UnsupportedVersion, match="version 3"):
        await open_desk.open(replace(sealed, body=b"QRE1\x03" + sealed.body[5:]))


async def test_when_a_request_looks_sealed_then_it_is_sealed_and_comes_back(
    desk: OpenDesk, ring: KeyRing
) -> None:
    """T9: even a whole envelope, as the body of a request, is a body like any other."""
    open_desk = await desk(Encryption(ring))
    envelope = await open_desk.seal()

    for body in (b"QRE1", b"QRE1\x02 and so on", envelope.body):
        request = replace(MESSAGE, body=body)
        sealed = await open_desk.seal(request)
        assert sealed.body != body
        assert await open_desk.open(sealed) == request


async def test_when_a_sealed_message_is_sent_on_then_it_stays_as_it_is(
    desk: OpenDesk, ring: KeyRing
) -> None:
    """R62: redrive and forwarding, also of what this app could not open."""
    elsewhere = await desk(Encryption(KeyRing(Key.generate("elsewhere"))))
    open_desk, off = await desk(Encryption(ring)), await desk(Encryption.off())

    for sender in (open_desk, elsewhere):
        sealed = await sender.seal()
        assert await open_desk.seal(sealed, is_ready_made=True) is sealed
        assert await off.seal(sealed, is_ready_made=True) is sealed
    assert counts(off.counters, "queue_messages_sent") == {"true": 2, "false": 0}


async def test_when_a_ready_made_message_is_plain_then_it_is_sealed(
    desk: OpenDesk, ring: KeyRing
) -> None:
    """R62."""
    open_desk = await desk(Encryption(ring))

    sealed = await open_desk.seal(is_ready_made=True)

    assert await open_desk.open(sealed) == MESSAGE


async def test_when_a_ready_made_message_is_a_broken_envelope_then_it_is_refused_at_send(
    desk: OpenDesk, ring: KeyRing
) -> None:
    """T9: as it is it would publish what may be plaintext; sealed it would hide the damage."""
    open_desk = await desk(Encryption(ring))
    sealed = await open_desk.seal()

    with pytest.raises(MalformedEnvelope):
        await open_desk.seal(replace(sealed, body=sealed.body[:40]), is_ready_made=True)
    with pytest.raises(UnsupportedVersion):
        await open_desk.seal(replace(sealed, body=b"QRE1, she said"), is_ready_made=True)


async def test_when_a_message_cannot_be_opened_then_that_is_logged_and_it_is_rejected(
    desk: OpenDesk, ring: KeyRing, log: Log
) -> None:
    """R61: a broken seal is seen, with its message and without its content."""
    open_desk = await desk(Encryption(ring))
    sealed = await open_desk.seal()

    with pytest.raises(CryptoError) as caught:
        await open_desk.open(replace(sealed, id="another"))

    assert lines(log, "message.unopened") == [("warning", "another")]
    assert log[0]["error"] == "AuthenticationFailed"
    outcome = decide(caught.value, attempt=1, strategy=retry(max_retries=9))
    assert isinstance(outcome, Reject)
    assert outcome.reason is RejectionReason.UNACCEPTABLE


async def test_when_two_apps_share_an_encryption_then_the_first_to_close_leaves_it_open(
    ring: KeyRing,
) -> None:
    encryption = Encryption(ring)
    await encryption.start(Counters(), None)
    await encryption.start(Counters(), None)

    await encryption.aclose()
    sealed = await encryption.encrypt(MESSAGE, "orders")
    assert await encryption.decrypt(delivered(sealed)) == MESSAGE
    await encryption.aclose()

    with pytest.raises(ConfigurationError, match="not open"):
        await encryption.encrypt(MESSAGE, "orders")


async def test_when_two_apps_open_an_encryption_at_once_then_its_keys_are_still_wiped(
    tmp_path: Path,
) -> None:
    """R69: loaded once, so that closing once is enough."""
    write(tmp_path / "keys", entry("a", A))
    keys = KeyFile(tmp_path / "keys")
    encryption = Encryption(keys)

    await asyncio.gather(*(encryption.start(Counters(), None) for _ in range(2)))
    key = await keys.active()
    await asyncio.gather(encryption.aclose(), encryption.aclose())

    assert key.is_wiped


# What a program without a type checker may pass.
unchecked: Any = Encryption
unchecked_tracking: Any = NonceTracking


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: unchecked(None), "Encryption.keys"),
        (lambda: unchecked(Key.generate("k")), "Encryption.keys"),
        (lambda: unchecked.off("keys"), "Encryption.keys"),
        (lambda: unchecked(a_ring(), max_age=timedelta(0)), "Encryption.max_age"),
        (lambda: unchecked(a_ring(), max_age=300), "Encryption.max_age"),
        (lambda: unchecked(a_ring(), plaintext="maybe"), "Encryption.plaintext"),
        (
            lambda: unchecked(a_ring(), clock_tolerance=timedelta(-1)),
            "Encryption.clock_tolerance",
        ),
        (
            lambda: unchecked(
                a_ring(),
                max_age=timedelta(hours=1),
                nonces=NonceTracking(ttl=timedelta(hours=1)),
            ),
            "NonceTracking.ttl",
        ),
        (lambda: unchecked_tracking(ttl=timedelta(0)), "NonceTracking.ttl"),
        (lambda: unchecked_tracking(store="memory"), "NonceTracking.store"),
    ],
)
def test_when_a_setting_cannot_work_then_the_error_names_it(make: Any, field: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make()

    assert caught.value.field == field


def a_ring() -> KeyRing:
    return KeyRing(Key.generate("k"))


def test_when_a_policy_is_written_as_text_then_it_is_understood(ring: KeyRing) -> None:
    assert "allow-with-alert" in repr(unchecked(ring, plaintext="allow-with-alert"))
