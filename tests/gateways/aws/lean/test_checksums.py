"""Checksums: a body that is not what was sent is no body."""

from __future__ import annotations

import hashlib
from base64 import b64encode

import pytest

from gateways._aws.lean.s3 import crc32
from pump.errors import ConnectionFailed

from ..conftest import Connect
from ..fake_aws import Answer, FakeAws

OBJECT = {"Bucket": "bucket", "Key": "k"}
SUMS = {
    "crc32": crc32(b"body"),
    "sha1": b64encode(hashlib.sha1(b"body", usedforsecurity=False).digest()).decode(),
    "sha256": b64encode(hashlib.sha256(b"body").digest()).decode(),
}


def test_when_a_checksum_is_taken_then_it_is_as_s3_writes_it() -> None:
    """CRC-32 of the nine digits, which its catalogue gives as cbf43926."""
    assert crc32(b"123456789") == b64encode(bytes.fromhex("cbf43926")).decode()


@pytest.mark.parametrize("name", SUMS)
async def test_when_a_body_fits_its_checksum_then_it_is_taken(
    aws: FakeAws, connect: Connect, name: str
) -> None:
    aws.script.append(Answer(body=b"body", headers={f"x-amz-checksum-{name}": SUMS[name]}))

    reply = await connect().call("s3", "get_object", OBJECT)

    assert reply["Body"] == b"body"
    assert reply[f"Checksum{name.upper()}"] == SUMS[name]


@pytest.mark.parametrize("name", SUMS)
async def test_when_a_body_does_not_fit_its_checksum_then_the_connection_has_failed(
    aws: FakeAws, connect: Connect, name: str
) -> None:
    """R51: half an object is no object, and neither is a changed one."""
    aws.script.append(Answer(body=b"bodY", headers={f"x-amz-checksum-{name}": SUMS[name]}))

    with pytest.raises(ConnectionFailed, match="checksum"):
        await connect().call("s3", "get_object", OBJECT)


@pytest.mark.parametrize(
    "headers",
    [
        {"x-amz-checksum-crc32": f"{SUMS['crc32']}-3"},
        {"x-amz-checksum-crc64nvme": "of a kind that takes a native library"},
    ],
    ids=["of-parts", "unknown"],
)
async def test_when_a_checksum_says_nothing_of_the_body_then_it_is_not_compared(
    aws: FakeAws, connect: Connect, headers: dict[str, str]
) -> None:
    aws.script.append(Answer(body=b"body", headers=headers))

    assert (await connect().call("s3", "get_object", OBJECT))["Body"] == b"body"
