"""R71, R74, R75: messages that are not encrypted, on the way out and on the way in."""

from __future__ import annotations

import logging

import pytest
from msgspec.structs import replace

from pump.crypto import (
    Encryption,
    Key,
    KeyNotFound,
    KeyRing,
    PlaintextLooksSealed,
    PlaintextPolicy,
    UnencryptedMessage,
)
from pump.events import PlaintextAcceptedEvent
from pump.observability import vocabulary

from .desk import (
    BODY,
    MESSAGE,
    PLAIN,
    Log,
    OpenDesk,
    counts,
    delivered,
    lines,
)


async def test_when_a_queue_is_mixed_then_both_kinds_are_handled_told_apart_and_counted(
    desk: OpenDesk, ring: KeyRing, caplog: pytest.LogCaptureFixture, log: Log
) -> None:
    """R74."""
    caplog.set_level(logging.INFO, "pump.crypto")
    open_desk = await desk(Encryption(ring, plaintext=PlaintextPolicy.ALLOW))

    opened = await open_desk.open(await open_desk.seal())
    plain = await open_desk.open(PLAIN)

    assert (opened, plain) == (MESSAGE, PLAIN)
    assert lines(log, "message.opened") == [("info", MESSAGE.id)]
    assert lines(log, "message.unencrypted") == [("warning", PLAIN.id)]
    assert [line["encrypted"] for line in log] == [True, False]
    assert counts(open_desk.counters, "queue_messages_received") == {"true": 1, "false": 1}
    assert counts(open_desk.counters, "queue_messages_sent") == {"true": 1, "false": 0}
    assert open_desk.counters.value("queue_messages_received", queue="orders") == 2


async def test_when_nobody_listens_to_info_then_an_opened_message_logs_nothing(
    desk: OpenDesk, ring: KeyRing, caplog: pytest.LogCaptureFixture, log: Log
) -> None:
    """R74."""
    caplog.set_level(logging.WARNING, "pump.crypto")
    open_desk = await desk(Encryption(ring))

    await open_desk.open(await open_desk.seal())

    assert log == []


async def test_when_plaintext_is_rejected_then_it_is_not_processed_and_counted(
    desk: OpenDesk, ring: KeyRing, log: Log
) -> None:
    """R75, and the default."""
    open_desk = await desk(Encryption(ring))

    with pytest.raises(UnencryptedMessage, match=r"'plain-1'.*not encrypted, and must be"):
        await open_desk.open(PLAIN)

    assert lines(log, "message.unencrypted") == [("error", PLAIN.id)]
    assert open_desk.counters.value(vocabulary.PLAINTEXT_REFUSED, queue="orders") == 1
    assert counts(open_desk.counters, "queue_messages_received") == {"true": 0, "false": 1}
    assert open_desk.events == []


@pytest.mark.parametrize("body", [b"", b"QRE", b"qre1\x01", b" QRE1", b"\x00QRE1"])
async def test_when_plaintext_nearly_looks_sealed_then_it_does_not_slip_through(
    desk: OpenDesk, ring: KeyRing, body: bytes
) -> None:
    """R75: no bypass."""
    open_desk = await desk(Encryption(ring))

    with pytest.raises(UnencryptedMessage):
        await open_desk.open(replace(PLAIN, body=body))


async def test_when_plaintext_raises_an_alert_then_it_is_handled_logged_counted_and_told(
    desk: OpenDesk, ring: KeyRing, log: Log
) -> None:
    """R75."""
    open_desk = await desk(Encryption(ring, plaintext=PlaintextPolicy.ALLOW_WITH_ALERT))

    assert await open_desk.open(PLAIN) == PLAIN

    assert lines(log, "message.unencrypted") == [("error", PLAIN.id)]
    assert open_desk.counters.value(vocabulary.PLAINTEXT_ALERTS, queue="orders") == 1
    assert open_desk.events == [
        PlaintextAcceptedEvent(message_id="plain-1", queue="orders", message_type="Order")
    ]


async def test_when_nobody_observes_then_an_alert_is_raised_all_the_same(ring: KeyRing) -> None:
    """R75."""
    encryption = Encryption(ring, plaintext=PlaintextPolicy.ALLOW_WITH_ALERT)

    assert await encryption.decrypt(delivered(PLAIN)) == PLAIN


async def test_when_encryption_is_off_then_each_send_is_plain_warned_of_and_counted(
    desk: OpenDesk, log: Log
) -> None:
    """R71."""
    open_desk = await desk(Encryption.off())

    sent = [await open_desk.seal(PLAIN) for _ in range(3)]

    assert sent == [PLAIN] * 3
    assert lines(log, "encryption.disabled") == [("warning", PLAIN.id)] * 3
    assert counts(open_desk.counters, "queue_messages_sent") == {"true": 0, "false": 3}


async def test_when_encryption_is_off_then_plaintext_is_accepted_and_counted(
    desk: OpenDesk, log: Log
) -> None:
    """R71, R74."""
    open_desk = await desk(Encryption.off())

    assert await open_desk.open(PLAIN) == PLAIN

    assert lines(log, "message.unencrypted") == [("warning", PLAIN.id)]
    assert counts(open_desk.counters, "queue_messages_received") == {"true": 0, "false": 1}


async def test_when_encryption_is_off_then_what_was_sealed_before_is_opened_with_its_keys(
    desk: OpenDesk,
) -> None:
    """R71: messages in the queue outlive a change of the configuration."""
    ring = KeyRing(Key.generate("2026-01"))
    sealed = await (await desk(Encryption(ring))).seal()
    with_keys, without = await desk(Encryption.off(ring)), await desk(Encryption.off())

    assert await with_keys.open(sealed) == MESSAGE
    assert (await with_keys.seal()).body == BODY
    with pytest.raises(KeyNotFound):
        await without.open(sealed)


@pytest.mark.parametrize("is_ready_made", [True, False])
@pytest.mark.parametrize("body", [b"QRE1", b"QRE1 is how it starts", b"QRE1\x01\x00\x01k"])
async def test_when_encryption_is_off_then_plaintext_that_looks_sealed_is_refused(
    desk: OpenDesk, body: bytes, is_ready_made: bool
) -> None:
    """T9."""
    open_desk = await desk(Encryption.off())

    with pytest.raises(PlaintextLooksSealed, match=PLAIN.id):
        await open_desk.seal(replace(PLAIN, body=body), is_ready_made=is_ready_made)

    assert counts(open_desk.counters, "queue_messages_sent") == {"true": 0, "false": 0}


async def test_when_encryption_is_off_then_a_request_is_refused_even_if_it_is_an_envelope(
    desk: OpenDesk, ring: KeyRing
) -> None:
    """T9: a request is plaintext, whatever its bytes look like."""
    envelope = await (await desk(Encryption(ring))).seal()
    open_desk = await desk(Encryption.off())

    with pytest.raises(PlaintextLooksSealed, match="0197-0001"):
        await open_desk.seal(envelope)
