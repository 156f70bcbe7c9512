"""The stand-in for S3 that benchmarks run on, seen through boto3."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.s3.rig import BUCKET, REGION, Rig, s3_rig

boto3 = pytest.importorskip("boto3")
pytest.importorskip("uvloop")
ClientError = pytest.importorskip("botocore.exceptions").ClientError


@pytest.fixture(scope="module")
def shared_rig() -> Iterator[Rig]:
    with s3_rig() as rig:
        yield rig


@pytest.fixture
def rig(shared_rig: Rig) -> Rig:
    shared_rig.start(latency_ms=0.0)
    return shared_rig


@pytest.fixture
def s3(rig: Rig) -> Iterator[Any]:
    client = boto3.client(
        "s3",
        region_name=REGION,
        endpoint_url=rig.endpoint,
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    yield client
    for key in rig.sizes():
        client.delete_object(Bucket=BUCKET, Key=key)
    client.close()


def put(s3: Any, key: str, body: bytes = b"x", **conditions: str) -> str:
    etag: str = s3.put_object(Bucket=BUCKET, Key=key, Body=body, **conditions)["ETag"]
    return etag


def refusal(call: Any, *args: Any, **request: Any) -> tuple[str, int]:
    with pytest.raises(ClientError) as caught:
        call(*args, **request)
    reply = caught.value.response
    return reply["Error"]["Code"], reply["ResponseMetadata"]["HTTPStatusCode"]


def test_when_an_object_is_put_then_it_is_read_as_it_was(s3: Any) -> None:
    body = bytes(range(256)) * 1000

    etag = put(s3, "a/größe &+.json", body)
    found = s3.get_object(Bucket=BUCKET, Key="a/größe &+.json")

    assert found["Body"].read() == body
    assert found["ETag"] == etag == f'"{hashlib.md5(body).hexdigest()}"'
    assert s3.head_object(Bucket=BUCKET, Key="a/größe &+.json")["ContentLength"] == len(body)
    assert "date" in found["ResponseMetadata"]["HTTPHeaders"]


def test_when_an_object_is_there_then_it_cannot_be_made_anew(s3: Any) -> None:
    put(s3, "k", IfNoneMatch="*")

    assert refusal(put, s3, "k", IfNoneMatch="*") == ("PreconditionFailed", 412)


def test_when_an_object_has_changed_then_a_write_over_the_old_version_is_refused(s3: Any) -> None:
    first = put(s3, "k", b"1")
    second = put(s3, "k", b"2", IfMatch=first)

    assert refusal(put, s3, "k", b"3", IfMatch=first) == ("PreconditionFailed", 412)
    assert refusal(put, s3, "gone", b"3", IfMatch=first) == ("NoSuchKey", 404)
    assert put(s3, "k", b"3", IfMatch=second)


def test_when_nothing_has_changed_then_a_read_says_so(s3: Any) -> None:
    etag = put(s3, "k")

    assert refusal(s3.get_object, Bucket=BUCKET, Key="k", IfNoneMatch=etag)[1] == 304
    assert refusal(s3.get_object, Bucket=BUCKET, Key="other") == ("NoSuchKey", 404)
    assert refusal(s3.head_object, Bucket=BUCKET, Key="other")[1] == 404


def test_when_keys_are_listed_then_they_come_in_order_page_by_page(s3: Any) -> None:
    for number in (3, 1, 2, 5, 4):
        put(s3, f"p/{number}", b"x" * number)
    put(s3, "q/1")

    first = s3.list_objects_v2(Bucket=BUCKET, Prefix="p/", MaxKeys=2)
    token = first["NextContinuationToken"]
    second = s3.list_objects_v2(Bucket=BUCKET, Prefix="p/", MaxKeys=3, ContinuationToken=token)
    behind = s3.list_objects_v2(Bucket=BUCKET, Prefix="p/", StartAfter="p/4")

    assert [each["Key"] for each in first["Contents"]] == ["p/1", "p/2"]
    assert [each["Size"] for each in second["Contents"]] == [3, 4, 5]
    assert (first["IsTruncated"], second["IsTruncated"]) == (True, False)
    assert [each["Key"] for each in behind["Contents"]] == ["p/5"]
    assert "Contents" not in s3.list_objects_v2(Bucket=BUCKET, Prefix="r/")


def test_when_objects_are_deleted_then_they_are_gone_whether_they_were_there_or_not(
    s3: Any, rig: Rig
) -> None:
    put(s3, "a & b")
    put(s3, "c")

    keys = [{"Key": key} for key in ("a & b", "c", "never")]
    s3.delete_objects(Bucket=BUCKET, Delete={"Objects": keys, "Quiet": True})
    s3.delete_object(Bucket=BUCKET, Key="c")

    assert rig.sizes() == {}


def test_requests_are_counted_as_they_are_billed(s3: Any, rig: Rig) -> None:
    etag = put(s3, "k")
    refusal(put, s3, "k", IfNoneMatch="*")
    refusal(s3.get_object, Bucket=BUCKET, Key="k", IfNoneMatch=etag)
    s3.head_object(Bucket=BUCKET, Key="k")
    s3.list_objects_v2(Bucket=BUCKET)
    s3.delete_object(Bucket=BUCKET, Key="k")

    assert rig.counts() == {"put": 2, "get": 2, "list": 1, "delete": 1}
    rig.start(latency_ms=1.0)
    assert rig.counts() == {}
