"""R63: whatever is changed, nothing is opened; every byte and every bit is tried."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pump.crypto import (
    AuthenticationFailed,
    Encryption,
    Key,
    KeyNotFound,
    KeyRing,
    MalformedEnvelope,
    MessageExpired,
    MessageFromFuture,
    SealedForAnotherQueue,
    UnencryptedMessage,
    UnsupportedVersion,
)
from pump.errors import ConfigurationError, CryptoError
from pump.message import Message
from pump.observability.telemetry import Counters

from .desk import MESSAGE, Desk, OpenDesk, changed, delivered

pytestmark = pytest.mark.usefixtures("log")

KEY_ID = b"2026-01"
_TIME_AT = 7 + len(KEY_ID)
_NONCE_AT = _TIME_AT + 8
_QUEUE_AT = _NONCE_AT + 12


def expected_at(position: int) -> tuple[type[CryptoError], ...]:
    """What a change of the byte there must lead to."""
    if position < 4:
        return (UnencryptedMessage,)
    if position == 4:
        # Version 2 taken for version 1 has another seal.
        return (UnsupportedVersion, AuthenticationFailed)
    if position < 7:
        # Another length of the key id: too long for the body, empty, no UTF-8, or unknown.
        return (MalformedEnvelope, KeyNotFound)
    if position < _TIME_AT:
        return (KeyNotFound, MalformedEnvelope)
    if position in (_QUEUE_AT, _QUEUE_AT + 1):
        return (MalformedEnvelope, AuthenticationFailed)
    return (AuthenticationFailed,)


async def refusal_of(desk: Desk, message: Message) -> type[BaseException]:
    with pytest.raises(CryptoError) as caught:
        await desk.open(message)
    return caught.type


async def test_when_any_bit_is_flipped_then_the_message_is_refused_with_the_fitting_error(
    desk: OpenDesk, ring: KeyRing
) -> None:
    """R63, R66, R72, R74: body, tag, nonce, time, key id, version, mark."""
    open_desk = await desk(Encryption(ring))
    sealed = await open_desk.seal()

    for position in range(len(sealed.body)):
        for bit in range(8):
            body = bytearray(sealed.body)
            body[position] ^= 1 << bit
            refusal = await refusal_of(open_desk, changed(sealed, body=bytes(body)))
            assert refusal in expected_at(position), f"byte {position}, bit {bit}"

    assert await open_desk.open(sealed) == MESSAGE


async def test_when_any_byte_becomes_any_other_then_the_message_is_refused(
    desk: OpenDesk, ring: KeyRing
) -> None:
    """R63."""
    open_desk = await desk(Encryption(ring))
    sealed = await open_desk.seal(Message(body=b"\x00\xff", id="m"))

    for position in range(len(sealed.body)):
        for value in set(range(256)) - {sealed.body[position]}:
            body = sealed.body[:position] + bytes([value]) + sealed.body[position + 1 :]
            refusal = await refusal_of(open_desk, changed(sealed, body=body))
            assert refusal in expected_at(position), f"byte {position} = {value}"


async def test_when_the_time_is_changed_where_it_matters_then_the_message_is_refused_too(
    desk: OpenDesk, ring: KeyRing
) -> None:
    """R63, R64."""
    open_desk = await desk(Encryption(ring, max_age=timedelta(days=1)))
    sealed = await open_desk.seal()
    refusals = set()

    for bit in range(64):
        body = bytearray(sealed.body)
        body[_TIME_AT + bit // 8] ^= 1 << bit % 8
        refusals.add(await refusal_of(open_desk, changed(sealed, body=bytes(body))))

    assert AuthenticationFailed in refusals
    assert refusals <= {AuthenticationFailed, MessageExpired, MessageFromFuture}


@pytest.mark.parametrize(
    "field", ["id", "group", "correlation_id", "type", "content_type", "reply_to"]
)
async def test_when_any_bit_of_an_id_is_flipped_then_the_seal_is_broken(
    desk: OpenDesk, ring: KeyRing, field: str
) -> None:
    """R63, T9."""
    open_desk = await desk(Encryption(ring))
    sealed = await open_desk.seal()
    text = getattr(sealed, field)

    for position in range(len(text)):
        for bit in range(8):
            other = text[:position] + chr(ord(text[position]) ^ 1 << bit) + text[position + 1 :]
            message = changed(sealed, **{field: other})
            assert await refusal_of(open_desk, message) is AuthenticationFailed


@pytest.mark.parametrize("field", ["group", "correlation_id", "reply_to"])
@pytest.mark.parametrize(("sent", "arrived"), [(None, ""), ("", None), ("a", None), (None, "a")])
async def test_when_an_id_appears_or_is_lost_then_the_seal_is_broken(
    desk: OpenDesk, ring: KeyRing, field: str, sent: str | None, arrived: str | None
) -> None:
    """R63: absent and empty are two things."""
    open_desk = await desk(Encryption(ring))
    sealed = await open_desk.seal(changed(MESSAGE, **{field: sent}))

    message = changed(sealed, **{field: arrived})

    assert await refusal_of(open_desk, message) is AuthenticationFailed


async def test_when_ids_change_places_then_the_seal_is_broken(
    desk: OpenDesk, ring: KeyRing
) -> None:
    """R63."""
    open_desk = await desk(Encryption(ring))
    sealed = await open_desk.seal(Message(body=b"{}", id="a", group="b", correlation_id="c"))

    for id_, group, correlation_id in (("b", "a", "c"), ("a", "c", "b"), ("ab", "", "c")):
        message = changed(sealed, id=id_, group=group, correlation_id=correlation_id)
        assert await refusal_of(open_desk, message) is AuthenticationFailed


async def test_when_parts_of_two_envelopes_are_joined_then_the_seal_is_broken(
    desk: OpenDesk, ring: KeyRing
) -> None:
    """R63."""
    open_desk = await desk(Encryption(ring))
    one, two = await open_desk.seal(), await open_desk.seal()

    for cut in range(_TIME_AT, len(one.body)):
        joined = one.body[:cut] + two.body[cut:]
        if joined not in (one.body, two.body):
            message = changed(one, body=joined)
            assert await refusal_of(open_desk, message) is AuthenticationFailed


async def test_when_an_envelope_is_cut_or_lengthened_then_it_is_refused(
    desk: OpenDesk, ring: KeyRing
) -> None:
    """R63."""
    open_desk = await desk(Encryption(ring))
    sealed = await open_desk.seal()

    for size in range(4, len(sealed.body)):
        refusal = await refusal_of(open_desk, changed(sealed, body=sealed.body[:size]))
        assert refusal in (MalformedEnvelope, AuthenticationFailed)
    longer = changed(sealed, body=sealed.body + b"\x00")
    assert await refusal_of(open_desk, longer) is AuthenticationFailed


async def test_when_what_is_not_covered_changes_then_the_message_still_opens(
    desk: OpenDesk, ring: KeyRing
) -> None:
    """R68: routing adds headers to what it routes."""
    open_desk = await desk(Encryption(ring))
    sealed = await open_desk.seal()

    routed = changed(sealed, headers={"rejectionReason": "Unacceptable"}, deduplication_id="d")

    assert (await open_desk.open(routed, queue="orders-invalid")).body == MESSAGE.body


@given(
    cut=st.integers(0, 90),
    edits=st.lists(st.tuples(st.integers(0, 90), st.binary(max_size=3)), min_size=1, max_size=4),
)
async def test_when_an_envelope_is_mutated_at_random_then_it_opens_to_nothing_but_itself(
    cut: int, edits: list[tuple[int, bytes]]
) -> None:
    """R63: a fuzz over parser and cipher; nothing but a CryptoError is raised."""
    encryption = Encryption(KeyRing(Key(KEY_ID.decode(), bytes(range(32)))))
    await encryption.start(Counters(), None)
    sealed = await encryption.encrypt(MESSAGE, "orders")
    body = sealed.body
    for position, inserted in edits:
        body = body[:position] + inserted + body[position + len(inserted) :]
    body = body[: cut + 5] if cut % 2 else body

    try:
        opened = await encryption.decrypt(delivered(changed(sealed, body=body)))
    except CryptoError:
        assert body != sealed.body
    else:
        assert (body, opened) == (sealed.body, MESSAGE)
    finally:
        await encryption.aclose()


async def test_when_a_sealed_payment_is_called_a_refund_then_it_does_not_open(
    desk: OpenDesk, ring: KeyRing
) -> None:
    """R63: another handler would see its body."""
    open_desk = await desk(Encryption(ring))
    sealed = await open_desk.seal(changed(MESSAGE, type="Pay"))

    assert await refusal_of(open_desk, changed(sealed, type="Refund")) is AuthenticationFailed


async def test_when_version_1_is_written_then_old_receivers_and_new_ones_open_it(
    desk: OpenDesk, ring: KeyRing
) -> None:
    """R72: for as long as receivers know no version 2; the type is not covered, documented so."""
    old, new = await desk(Encryption(ring, write_version=1)), await desk(Encryption(ring))
    sealed = await old.seal()

    assert sealed.body[4] == 1
    assert await new.open(sealed) == MESSAGE
    assert (await new.open(changed(sealed, type="Other"))).body == MESSAGE.body
    assert (await new.seal()).body[4] == 2


async def test_when_version_1_is_not_wanted_any_more_then_it_is_refused(
    desk: OpenDesk, ring: KeyRing
) -> None:
    """R72: after the last of it was handled, or what it does not cover could still be changed."""
    old = await desk(Encryption(ring, write_version=1))
    strict = await desk(Encryption(ring, oldest_version=2))

    assert await refusal_of(strict, await old.seal()) is UnsupportedVersion
    assert await strict.open(await strict.seal()) == MESSAGE


async def test_when_a_message_is_bound_to_a_queue_then_it_opens_from_no_other(
    desk: OpenDesk, ring: KeyRing
) -> None:
    """R63, R68: but where the app says so, as for dead letters; a redrive brings it home."""
    bound = await desk(Encryption(ring, bind_queue=True))
    unbound, morgue = await desk(Encryption(ring)), await desk(Encryption(ring, also_from=["pay"]))
    sealed = await bound.seal(queue="pay")
    faked = changed(sealed, headers={"originalTopic": "pay"})

    assert await bound.open(sealed, queue="pay") == MESSAGE
    for elsewhere in (bound, unbound):
        with pytest.raises(SealedForAnotherQueue, match=r"encrypted for queue 'pay'.*'refund'"):
            await elsewhere.open(faked, queue="refund")
    assert await morgue.open(sealed, queue="pay-dead") == MESSAGE
    assert await bound.open(await unbound.seal(queue="pay"), queue="refund") == MESSAGE


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"write_version": 3}, "write_version"),
        ({"oldest_version": 0}, "oldest_version"),
        ({"write_version": 1, "oldest_version": 2}, "write_version"),
        ({"write_version": 1, "bind_queue": True}, "bind_queue"),
        ({"also_from": "orders"}, "also_from"),
    ],
)
def test_when_versions_or_queues_make_no_sense_then_the_field_is_named(
    ring: KeyRing, fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigurationError, match=rf"Encryption\.{named}"):
        Encryption(ring, **fields)
