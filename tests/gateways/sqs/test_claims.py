"""Bodies too large for SQS wait in S3, are found again, and outlive every crash."""

import json
from base64 import b64encode
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from gateways._aws.errors import ObjectNotFound
from gateways._aws.sdk import transport_for
from gateways._aws.settings import AwsSettings, Credentials, TransportKind
from gateways.sqs.calls import MAX_BYTES
from gateways.sqs.claims import ClaimCheck, Claims
from gateways.sqs.wire import decode, encode
from pump.errors import AccessDenied, ConfigurationError, ConnectionFailed
from pump.headers import CLAIM
from pump.message import Message
from tests.brokers.aws_account import AwsAccount

from .bucket import LARGE, Bucket, claims, large
from .carrier import carry
from .messages import messages


async def test_when_a_body_is_large_then_a_small_message_travels_in_its_place() -> None:
    bucket = Bucket()

    stored = await claims(bucket).store(large(), "orders")

    [(place, body)] = bucket.objects.items()
    claim = json.loads(stored.headers[CLAIM])
    assert body == LARGE
    assert place == (claim["bucket"], claim["key"])
    assert stored == large(body=b"", headers={"a": "b", CLAIM: stored.headers[CLAIM]})
    assert encode(stored, is_fifo=False).size < 500


async def test_when_the_message_arrives_then_it_is_as_it_was_sent() -> None:
    bucket = Bucket()
    message = large(type="Report", content_type="text/plain", group="g", correlation_id="c")
    stored = await claims(bucket).store(message, "orders")

    received = decode(carry(stored, is_fifo=True))

    assert await claims(bucket).redeem(received) == message


@given(messages, st.integers(0, 60))
async def test_when_any_message_is_stored_and_redeemed_then_it_is_as_it_was_sent(
    message: Message, threshold_bytes: int
) -> None:
    bucket = Bucket()
    those = claims(bucket, threshold_bytes=threshold_bytes)

    stored = await those.store(message, "orders")

    assert (stored is message) == (not bucket.objects)
    assert await those.redeem(decode(carry(stored, is_fifo=False))) == message


async def test_when_a_body_is_small_then_nothing_is_asked_of_s3() -> None:
    bucket = Bucket()
    message = Message(body=b"x" * 262_144)

    assert await claims(bucket).store(message, "orders") is message
    assert await claims(bucket).redeem(message) is message
    await claims(bucket).discard(message)
    assert bucket.calls == []


@pytest.mark.parametrize(
    ("body", "is_stored"),
    [(b"x" * 100, False), (b"x" * 101, True), (b"\x00" * 75, False), (b"\x00" * 76, True)],
)
async def test_when_a_body_becomes_base64_then_what_travels_is_measured(
    body: bytes, is_stored: bool
) -> None:
    bucket = Bucket()

    await claims(bucket, threshold_bytes=100).store(Message(body=body), "orders")

    assert bool(bucket.objects) == is_stored


async def test_when_a_body_is_beyond_sqs_then_it_is_stored_and_found_again() -> None:
    bucket = Bucket()
    message = large(body=b"\xff" * (MAX_BYTES + 1))

    stored = await claims(bucket).store(message, "orders")

    assert stored.body == b""
    assert await claims(bucket).redeem(stored) == message


async def test_when_body_and_headers_together_do_not_fit_then_the_body_is_stored() -> None:
    bucket = Bucket()
    # Of chance, so that compressing it gains nothing.
    body = b64encode(Random(7).randbytes(450_000))
    message = Message(body=body, headers={"h": "y" * 600_000})

    stored = await claims(bucket, threshold_bytes=MAX_BYTES).store(message, "orders")

    assert bucket.operations == ["put_object"]
    assert encode(stored, is_fifo=True).size <= MAX_BYTES


async def test_when_headers_alone_do_not_fit_then_no_object_is_left_behind() -> None:
    """The producer refuses such a message, so nobody would ever delete its body."""
    bucket = Bucket()
    message = large(headers={"h": "y" * MAX_BYTES})

    assert await claims(bucket).store(message, "orders") is message
    assert bucket.calls == []


@pytest.mark.parametrize(
    ("queue", "message_id", "begins"),
    [
        ("orders", "m-1", "claims/orders/m-1-"),
        ("orders.fifo", "m-1", "claims/orders.fifo/m-1-"),
        ("https://sqs.eu-west-1.amazonaws.com/1234/orders", "m-1", "claims/orders/m-1-"),
        ("arn:aws:sqs:eu-west-1:1234:orders", "m-1", "claims/orders/m-1-"),
    ],
)
async def test_when_a_body_is_stored_then_its_key_says_whose_it_is(
    queue: str, message_id: str, begins: str
) -> None:
    bucket = Bucket()

    await claims(bucket).store(large(id=message_id), queue)

    [(name, key)] = bucket.objects
    assert (name, key[: len(begins)]) == ("bodies", begins)
    assert bucket.targets == [f"bodies/{key}"]


@given(st.text(st.characters(exclude_categories=())), st.text())
async def test_when_ids_are_of_any_text_then_keys_are_still_plain(
    message_id: str, queue: str
) -> None:
    bucket = Bucket()

    await claims(bucket, threshold_bytes=0).store(Message(body=b"x", id=message_id), queue)

    [(_, key)] = bucket.objects
    assert key.isascii()
    assert key.isprintable()
    assert len(key) < 400


@pytest.mark.parametrize(
    ("given_type", "kept"),
    [
        ("text/csv; charset=utf-8", "text/csv; charset=utf-8"),
        ("", "application/octet-stream"),
        ("a\r\nx-amz-acl: public-read", "application/octet-stream"),
        ("täxt", "application/octet-stream"),
    ],
)
async def test_when_a_body_is_stored_then_its_content_type_is_kept_if_http_can(
    given_type: str, kept: str
) -> None:
    bucket = Bucket()

    await claims(bucket).store(large(content_type=given_type), "orders")

    assert bucket.calls[0][1]["ContentType"] == kept


async def test_when_a_message_is_sent_twice_then_each_copy_has_its_own_body() -> None:
    """Acking one of them must not take the body from the other."""
    bucket = Bucket()
    those = claims(bucket)
    first, second = [await those.store(large(), "orders") for _ in range(2)]

    await those.discard(first)

    assert await those.redeem(second) == large()


async def test_when_the_body_cannot_be_stored_then_there_is_nothing_to_send() -> None:
    """Law 2: the object is durable before the message that needs it exists."""
    bucket = Bucket()
    bucket.failure = ConnectionFailed("s3", "reset")

    with pytest.raises(ConnectionFailed):
        await claims(bucket).store(large(), "orders")


async def test_when_a_message_was_acked_then_its_object_goes_and_not_before() -> None:
    """A lease that was lost, or a crash, leaves the body for the next delivery."""
    bucket = Bucket()
    those = claims(bucket)
    stored = await those.store(large(), "orders")

    for _ in range(2):
        assert await those.redeem(stored) == large()
    await those.discard(stored)

    assert bucket.operations == ["put_object", "get_object", "get_object", "delete_object"]
    assert bucket.objects == {}


async def test_when_a_rejected_message_is_copied_then_the_copy_outlives_the_original() -> None:
    """R27, R28, law 2: copy sent, original acked, its object deleted; a crash in between
    leaves both.
    """
    # given a message with its body, as the handler has it
    bucket = Bucket()
    those = claims(bucket)
    stored = await those.store(large(), "orders")
    whole = await those.redeem(stored)

    # when its copy is sent to the dead-letter queue, and then the original is acked
    copy = replace(whole, headers={**whole.headers, "rejectionReason": "delivery error"})
    routed = await those.store(copy, "orders-dlq")
    both = len(bucket.objects)
    await those.discard(stored)

    # then the copy has a body of its own
    assert both == 2
    assert await those.redeem(routed) == copy


@pytest.mark.parametrize("reference", [lambda m: m, lambda m: m.headers[CLAIM]])
async def test_when_the_object_is_gone_already_then_discarding_is_no_error(
    reference: Callable[[Message], Message | str],
) -> None:
    bucket = Bucket()
    those = claims(bucket)
    stored = await those.store(large(), "orders")

    for _ in range(2):
        await those.discard(reference(stored))

    bucket.failure = ObjectNotFound("bodies/x")
    await those.discard(reference(stored))
    assert bucket.objects == {}


async def test_when_discarding_fails_then_the_caller_learns_of_it() -> None:
    bucket = Bucket()
    stored = await claims(bucket).store(large(), "orders")
    bucket.failure = AccessDenied("bodies", "s3:DeleteObject")

    with pytest.raises(AccessDenied):
        await claims(bucket).discard(stored)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bucket", ""),
        ("bucket", " "),
        ("bucket", None),
        ("prefix", None),
        ("prefix", "x" * 513),
        ("threshold_bytes", -1),
        ("threshold_bytes", MAX_BYTES + 1),
        ("threshold_bytes", 1.5),
        ("threshold_bytes", False),
    ],
)
def test_when_the_settings_cannot_work_then_the_error_names_the_field(
    field: str, value: Any
) -> None:
    """R56."""
    settings: dict[str, Any] = {"bucket": "bodies", field: value}

    with pytest.raises(ConfigurationError, match=rf"ClaimCheck\.{field}"):
        ClaimCheck(**settings)


@pytest.mark.broker
@pytest.mark.parametrize("kind", TransportKind)
async def test_when_bodies_wait_in_s3_then_both_sdks_find_and_delete_them(
    aws: AwsAccount, kind: TransportKind
) -> None:
    """R34."""
    # given a bucket, and a message of 3 MB that is sent through it
    bucket = f"claims-{aws.account_id}"
    aws.client("s3").create_bucket(
        Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": aws.region}
    )
    transport = transport_for(
        AwsSettings(
            endpoint_url=aws.endpoint_url,
            region=aws.region,
            credentials=Credentials(
                access_key_id=aws.access_key_id, secret_access_key=aws.secret_access_key
            ),
            transport=kind,
        )
    )
    await transport.open()
    those = Claims(transport, ClaimCheck(bucket=bucket, prefix="bodies/"))
    message = large(body=bytes(range(256)) * 12_000, content_type="image/png")

    # when it is received, acked, and delivered once more
    try:
        stored = await those.store(message, "orders")
        [listed] = aws.client("s3").list_objects_v2(Bucket=bucket)["Contents"]
        head = aws.client("s3").head_object(Bucket=bucket, Key=listed["Key"])
        redeemed = await those.redeem(decode(carry(stored, is_fifo=False)))
        for _ in range(2):
            await those.discard(stored)
        with pytest.raises(ObjectNotFound):
            await those.redeem(stored)
    finally:
        await transport.aclose()

    # then its body was there until the ack, and is not afterwards
    assert redeemed == message
    assert head["ContentType"] == "image/png"
    assert aws.client("s3").list_objects_v2(Bucket=bucket)["KeyCount"] == 0
