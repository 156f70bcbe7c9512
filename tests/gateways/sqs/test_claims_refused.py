"""Claims that cannot be honoured: lost bodies, wrong ones, and claims that are not ours."""

import json
import pickle
from typing import Any

import pytest
from msgspec.structs import replace

from gateways._aws.errors import ObjectNotFound
from gateways.sqs.claims import BodyMismatch
from pump.errors import ConnectionFailed
from pump.headers import CLAIM
from pump.message import Message

from .bucket import LARGE, Bucket, claims, large


def forged(**changes: Any) -> Message:
    """A message with a claim that we did not write."""
    claim = {"bucket": "bodies", "key": "claims/orders/m-1-0", "size": 1, "sha256": "0"}
    return Message(body=b"", headers={CLAIM: json.dumps(claim | changes)})


async def test_when_the_body_is_lost_then_that_is_final() -> None:
    """The consumer delivers it as it is, to be rejected with its claim."""
    bucket = Bucket()
    stored = await claims(bucket).store(large(), "orders")
    bucket.objects.clear()

    with pytest.raises(ObjectNotFound) as caught:
        await claims(bucket).redeem(stored)

    assert caught.value.bucket_key == bucket.targets[0]


@pytest.mark.parametrize("found", [LARGE[:-1], LARGE[:-1] + b"!", b""])
async def test_when_the_object_is_another_then_that_is_final_too(found: bytes) -> None:
    bucket = Bucket()
    stored = await claims(bucket).store(large(), "orders")
    bucket.objects = dict.fromkeys(bucket.objects, found)

    with pytest.raises(BodyMismatch) as caught:
        await claims(bucket).redeem(stored)

    error = caught.value
    assert isinstance(error, ObjectNotFound)
    assert str(error).startswith(f"{bucket.targets[0]} is not the body")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


async def test_when_s3_cannot_be_reached_then_the_error_says_so() -> None:
    """R51: not final; the delivery is handed back and tried again."""
    bucket = Bucket()
    stored = await claims(bucket).store(large(), "orders")
    bucket.failure = ConnectionFailed("bodies", "reset")

    with pytest.raises(ConnectionFailed):
        await claims(bucket).redeem(stored)


@pytest.mark.parametrize(
    "changes",
    [
        {"bucket": "payroll"},
        {"key": "payroll/2026.csv"},
        {"key": "claim"},
        {"key": 7},
        {"size": "large"},
        {"bucket": None},
    ],
)
async def test_when_a_claim_points_elsewhere_then_it_is_none(changes: dict[str, Any]) -> None:
    """A stranger who may send must not read or delete what we may."""
    bucket = Bucket()
    message = forged(**changes)

    assert not claims(bucket).is_claim(message)
    assert await claims(bucket).redeem(message) is message
    await claims(bucket).discard(message)
    await claims(bucket).discard(message.headers[CLAIM])
    assert bucket.calls == []


async def test_when_a_claim_is_forged_then_only_who_knows_the_body_gets_it() -> None:
    bucket = Bucket()
    bucket.objects["bodies", "claims/orders/m-1-0"] = b"s"

    with pytest.raises(BodyMismatch):
        await claims(bucket).redeem(forged())


@pytest.mark.parametrize("header", ["", "{", "null", "[" * 100_000, "\ud800", "{}"])
async def test_when_the_claim_is_unreadable_then_the_message_stays_as_it_is(header: str) -> None:
    bucket = Bucket()
    message = Message(body=b"", headers={CLAIM: header})

    assert await claims(bucket).redeem(message) is message
    await claims(bucket).discard(header)
    assert bucket.calls == []


async def test_when_a_message_has_a_body_then_no_claim_replaces_it() -> None:
    bucket = Bucket()
    stored = await claims(bucket).store(large(), "orders")
    message = replace(stored, body=b"{}")

    assert not claims(bucket).is_claim(message)
    assert await claims(bucket).redeem(message) is message


async def test_when_a_lost_claim_is_rejected_then_the_copy_still_carries_it() -> None:
    """Should the object come back, a redrive finds it."""
    bucket = Bucket()
    those = claims(bucket)
    stored = await those.store(large(), "orders")
    kept, bucket.objects = bucket.objects, {}

    copy = await those.store(stored, "orders-dlq")
    bucket.objects = kept

    assert copy is stored
    assert await those.redeem(copy) == large()
