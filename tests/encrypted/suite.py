"""What payload encryption promises, on any gateway: `Sealed` is run against each of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from pump import headers
from pump.crypto import Encryption, Key, KeyRing, MemoryNonces, NonceTracking, PlaintextPolicy
from pump.crypto.envelope import parse
from pump.errors import CryptoError, MappingError
from pump.message import Message
from pump.observability import vocabulary
from pump.ports import MAGIC, PayloadEncryption
from pump.testing import VirtualClock

from .bench import SECRET, PlaceOrder, Shop, without_rejection

OpenShop = Callable[[PayloadEncryption | None], Shop]


def a_key(id: str = "2026-11") -> Key:
    return Key.generate(id)


class Sealed:
    """Subclasses bring the fixture `open_shop`: makes shops on one gateway and one queue."""

    async def test_when_a_request_is_posted_then_only_its_body_is_hidden_and_it_arrives(
        self, open_shop: OpenShop
    ) -> None:
        """R62, R68, R70."""
        shop = open_shop(Encryption(KeyRing(a_key())))
        async with shop.open():
            id_ = await shop.app.post(
                PlaceOrder(), correlation_id="c-1", group="g-1", headers={"tenant": "t"}
            )
            stored = await shop.take()
            await shop.put(stored)
            await shop.pump_outcomes(1)

        assert stored.body.startswith(MAGIC)
        assert SECRET.encode() not in stored.body
        assert (stored.id, stored.correlation_id, stored.type) == (id_, "c-1", "PlaceOrder")
        assert (stored.group, stored.headers["tenant"]) == ("g-1", "t")
        assert shop.handled == [PlaceOrder()]

    @pytest.mark.parametrize("spot", [0.0, 0.5, 1.0], ids=["header", "body", "tag"])
    async def test_when_a_bit_was_flipped_then_the_message_is_routed_as_it_is(
        self, open_shop: OpenShop, spot: float
    ) -> None:
        """R63: no plaintext, no word about the key."""
        shop = open_shop(Encryption(KeyRing(a_key())))
        async with shop.open():
            await shop.app.post(PlaceOrder())
            stored = await shop.take()
            envelope = parse(stored.body)
            # The nonce's last byte: what stands before it, or says how long a name is, has errors
            # of its own.
            start = len(envelope.header) - 3
            at = start + round(spot * (len(stored.body) - 1 - start))
            forged = bytearray(stored.body)
            forged[at] ^= 1
            await shop.put(stored, body=bytes(forged))
            [outcome] = await shop.pump_outcomes(1)
            routed = await shop.take(shop.subscription.invalid_queue)

        assert shop.handled == []
        assert outcome.detail.startswith("AuthenticationFailed")
        assert SECRET not in outcome.detail
        assert routed.body == bytes(forged)
        assert routed.headers[headers.REJECTION_REASON] == "Unacceptable"

    async def test_when_an_id_was_changed_then_the_message_is_refused(
        self, open_shop: OpenShop
    ) -> None:
        """R63, T9."""
        shop = open_shop(Encryption(KeyRing(a_key())))
        async with shop.open():
            await shop.app.post(PlaceOrder(), correlation_id="c-1")
            stored = await shop.take()
            await shop.put(stored, correlation_id="c-2")
            await shop.put(stored, id="another")
            outcomes = await shop.pump_outcomes(2)

        assert [each.detail.split(":")[0] for each in outcomes] == ["AuthenticationFailed"] * 2

    async def test_when_a_message_is_too_old_then_it_is_refused_and_the_error_says_how_old(
        self, open_shop: OpenShop
    ) -> None:
        """R64."""
        key, clock = a_key(), VirtualClock()
        sender = open_shop(Encryption(_kept(key), clock=clock))
        receiver = open_shop(Encryption(_kept(key), max_age=timedelta(minutes=5)))
        forgiving = open_shop(Encryption(_kept(key), max_age=None))
        async with sender.open():
            await sender.app.post(PlaceOrder())
        async with receiver.open():
            [outcome] = await receiver.pump_outcomes(1)
            old = await receiver.take(receiver.subscription.invalid_queue)
        async with forgiving.open():
            await forgiving.put(without_rejection(old))
            await forgiving.pump_outcomes(1)

        assert outcome.detail.startswith("MessageExpired")
        assert "0:05:00" in outcome.detail
        assert receiver.handled == []
        assert forgiving.handled == [PlaceOrder()]

    async def test_when_keys_are_rotated_then_old_and_new_messages_open(
        self, open_shop: OpenShop
    ) -> None:
        """R65."""
        ring = KeyRing(a_key("old"))
        shop = open_shop(Encryption(ring))
        async with shop.open():
            await shop.app.post(PlaceOrder(mood="old"))
            old = await shop.take()
            ring.rotate(a_key("new"))
            await shop.app.post(PlaceOrder(mood="new"))
            new = await shop.take()
            await shop.put(old)
            await shop.put(new)
            await shop.pump_outcomes(2)

        assert (parse(old.body).key_id, parse(new.body).key_id) == ("old", "new")
        assert sorted(order.mood for order in shop.handled) == ["new", "old"]

    async def test_when_the_key_is_not_known_then_the_error_names_it(
        self, open_shop: OpenShop
    ) -> None:
        """R66."""
        stranger = open_shop(Encryption(KeyRing(a_key("theirs"))))
        shop = open_shop(Encryption(KeyRing(a_key("ours"))))
        async with stranger.open():
            await stranger.app.post(PlaceOrder())
        async with shop.open():
            [outcome] = await shop.pump_outcomes(1)

        assert outcome.detail.startswith("KeyNotFound")
        assert "theirs" in outcome.detail

    async def test_when_a_copy_is_sent_again_then_it_is_refused_and_a_retry_is_not(
        self, open_shop: OpenShop
    ) -> None:
        """R67, T6."""
        tracking = NonceTracking(store=MemoryNonces())
        shop = open_shop(Encryption(KeyRing(a_key()), nonces=tracking))
        async with shop.open():
            await shop.app.post(PlaceOrder(mood="shaky"))
            stored = await shop.take()
            await shop.put(stored)
            await shop.pump_outcomes(1)
            await shop.put(stored)
            outcomes = await shop.pump_outcomes(2)

        assert shop.handled == [PlaceOrder(mood="shaky")]
        assert [each.status.value for each in outcomes] == ["processed", "dead-lettered"]
        assert outcomes[1].detail.startswith("NonceReused")

    async def test_when_a_sealed_message_is_rejected_and_redriven_then_it_stays_sealed_and_opens(
        self, open_shop: OpenShop
    ) -> None:
        """R28, R62, T9: nobody opens it on the way; a redrive is no replay."""
        tracking = NonceTracking(store=MemoryNonces())
        shop = open_shop(Encryption(KeyRing(a_key()), nonces=tracking))
        async with shop.open():
            await shop.app.post(PlaceOrder(mood="hopeless"), correlation_id="c-1")
            sent = await shop.take()
            await shop.put(sent)
            await shop.pump_outcomes(1)
            dead = await shop.take(shop.subscription.dead_letter_queue)
            await shop.put(without_rejection(dead))
            await shop.pump_outcomes(2)

        assert dead.body == sent.body
        assert (dead.id, dead.correlation_id) == (sent.id, "c-1")
        assert len(shop.failed) == 2, "it was opened and tried again"

    async def test_when_a_handlers_error_quotes_its_request_then_the_dead_letter_does_not(
        self, open_shop: OpenShop
    ) -> None:
        """R28, R68: what was sealed does not leave in a header."""
        shop = open_shop(Encryption(KeyRing(a_key())))
        async with shop.open():
            await shop.app.post(PlaceOrder(mood="talkative"))
            await shop.pump_outcomes(1)
            dead = await shop.take(shop.subscription.dead_letter_queue)

        assert dead.headers[headers.REJECTION_DETAIL] == "ValueError"
        assert SECRET not in str(dict(dead.headers))

    async def test_when_encryption_is_switched_off_then_each_send_is_warned_about_and_counted(
        self, open_shop: OpenShop
    ) -> None:
        """R71."""
        shop = open_shop(Encryption.off())
        async with shop.open():
            with capture_logs() as lines:
                await shop.app.post(PlaceOrder())
                await shop.app.post(PlaceOrder())
            stored = await shop.take()

        assert SECRET.encode() in stored.body
        warnings = [line for line in lines if line["log_level"] == "warning"]
        assert len(warnings) == 2
        assert SECRET not in str(lines)
        counted = shop.app.counters.value(vocabulary.MESSAGES_SENT, encrypted="false")
        assert counted == 2

    async def test_when_the_version_is_unknown_then_the_error_says_so(
        self, open_shop: OpenShop
    ) -> None:
        """R72."""
        shop = open_shop(Encryption(KeyRing(a_key())))
        async with shop.open():
            await shop.app.post(PlaceOrder())
            stored = await shop.take()
            await shop.put(stored, body=stored.body[:4] + b"\x07" + stored.body[5:])
            [outcome] = await shop.pump_outcomes(1)

        assert outcome.detail.startswith("UnsupportedVersion")
        assert "7" in outcome.detail

    async def test_when_a_queue_is_mixed_then_both_kinds_are_handled_logged_and_counted(
        self, open_shop: OpenShop, caplog: pytest.LogCaptureFixture
    ) -> None:
        """R74."""
        caplog.set_level("INFO", logger="pump.crypto")
        plain = open_shop(None)
        shop = open_shop(Encryption(KeyRing(a_key()), plaintext=PlaintextPolicy.ALLOW))
        async with plain.open():
            await plain.app.post(PlaceOrder(mood="plain"))
        async with shop.open():
            await shop.app.post(PlaceOrder(mood="sealed"))
            with capture_logs() as lines:
                await shop.pump_outcomes(2)

        assert sorted(order.mood for order in shop.handled) == ["plain", "sealed"]
        told = {line["event"]: line["log_level"] for line in lines}
        assert told[vocabulary.MESSAGE_UNENCRYPTED] == "warning"
        assert told[vocabulary.MESSAGE_OPENED] == "info"
        for encrypted in ("true", "false"):
            counted = shop.app.counters.value(vocabulary.MESSAGES_RECEIVED, encrypted=encrypted)
            assert counted == 1, encrypted

    async def test_when_plaintext_is_not_accepted_then_it_is_routed_unhandled(
        self, open_shop: OpenShop
    ) -> None:
        """R75."""
        plain = open_shop(None)
        shop = open_shop(Encryption(KeyRing(a_key()), plaintext=PlaintextPolicy.REJECT))
        async with plain.open():
            await plain.app.post(PlaceOrder())
        async with shop.open():
            [outcome] = await shop.pump_outcomes(1)
            routed = await shop.take(shop.subscription.invalid_queue)

        assert shop.handled == []
        assert outcome.detail.startswith("UnencryptedMessage")
        assert SECRET.encode() in routed.body
        assert shop.app.counters.value(vocabulary.MESSAGES_RECEIVED, encrypted="false") == 1

    async def test_when_plaintext_looks_sealed_then_it_is_refused_at_send(
        self, open_shop: OpenShop
    ) -> None:
        """T9."""
        for encryption in (None, Encryption.off()):
            shop = open_shop(encryption)
            async with shop.open():
                with pytest.raises((CryptoError, MappingError)):
                    await shop.app.post(b"QRE1 is how it starts", queue=shop.queue)

    async def test_when_an_app_without_keys_meets_a_sealed_message_then_it_says_what_is_missing(
        self, open_shop: OpenShop
    ) -> None:
        """R74: ciphertext is never taken for a request."""
        sender = open_shop(Encryption(KeyRing(a_key())))
        shop = open_shop(None)
        async with sender.open():
            await sender.app.post(PlaceOrder())
        async with shop.open():
            [outcome] = await shop.pump_outcomes(1)
            routed = await shop.take(shop.subscription.invalid_queue)

        assert "encrypted" in outcome.detail
        assert routed.body.startswith(MAGIC)

    async def test_when_a_consumer_reads_by_hand_then_it_gets_the_request_and_rejects_it_sealed(
        self, open_shop: OpenShop
    ) -> None:
        """R62."""
        shop = open_shop(Encryption(KeyRing(a_key())))
        async with shop.open():
            await shop.app.post(PlaceOrder())
            async with shop.app.consumer(shop.subscription) as consumer:
                [delivery] = await consumer.receive(wait=timedelta(seconds=10))
                order = await consumer.read(delivery)
                opened = await consumer.open(delivery)
                await consumer.reject(delivery)
            dead = await shop.take(shop.subscription.dead_letter_queue)

        assert order == PlaceOrder()
        assert SECRET.encode() in opened.body
        assert dead.body == delivery.message.body

    async def test_when_a_sealed_message_is_posted_as_it_is_then_it_is_not_sealed_twice(
        self, open_shop: OpenShop
    ) -> None:
        """T9: an app may send on what it cannot, or need not, open."""
        shop = open_shop(Encryption(KeyRing(a_key())))
        async with shop.open():
            await shop.app.post(PlaceOrder())
            stored = await shop.take()
            await shop.app.post(_as_new(stored), queue=shop.queue)
            again = await shop.take()

        assert again.body == stored.body


def _kept(key: Key) -> KeyRing:
    return KeyRing(key, wipe_on_close=False)


def _as_new(message: Message) -> Message:
    return replace(message, deduplication_id=None)
