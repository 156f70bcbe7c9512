"""What arrives is what was signed: a server that checks with botocore's own signer finds no fault.

No server at hand checks signatures, and AWS does. Between the signer and the wire there is aiohttp,
which might encode a path, fold a header or add one.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest

from gateways._aws.settings import Credentials

from ..conftest import ACCESS_KEY_ID, SECRET, TOKEN, Connect
from ..fake_aws import Answer, FakeAws, Seen
from .botocore_signing import sign_by_botocore
from .test_like_boto3 import S3_CALLS, SQS_CALLS

KEYS = ["a b+c", "ü/€/😀", "a//b/../c/./", "%41%2F", "~-._", "a?b#c&d=e", "'\"<>\\^`{|}", "\t\x7f"]
CALLS = [
    *(("sqs", *call) for call in SQS_CALLS),
    *(("s3", *call) for call in S3_CALLS),
    *(("s3", "get_object", {"Bucket": "bucket", "Key": key}) for key in KEYS),
    *(("s3", "list_objects_v2", {"Bucket": "bucket", "Prefix": key}) for key in KEYS),
]


def _authorization(seen: Seen, service: str) -> str:
    """What botocore would have signed this request with."""
    names = seen.headers["authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
    headers = {name: seen.headers[name] for name in names if name != "x-amz-date"}
    url = f"http://{seen.headers['host']}{seen.path}"
    request = AWSRequest(seen.method, url, headers=headers, data=seen.body)
    signed_at = datetime.strptime(seen.headers["x-amz-date"], "%Y%m%dT%H%M%SZ")
    auth = S3SigV4Auth if service == "s3" else SigV4Auth
    token = seen.headers.get("x-amz-security-token")
    key = (ACCESS_KEY_ID, SECRET, token)
    sign_by_botocore(request, auth, (service, "eu-west-1"), key, at=signed_at.replace(tzinfo=UTC))
    return str(request.headers["Authorization"])


@pytest.mark.parametrize(("service", "operation", "request_"), CALLS)
async def test_when_a_request_arrives_then_its_signature_fits_it(
    aws: FakeAws, connect: Connect, service: str, operation: str, request_: dict[str, Any]
) -> None:
    if operation in ("list_objects_v2", "delete_objects", "get_bucket_versioning"):
        aws.always = Answer(body=b"<Result/>")

    await connect().call(service, operation, request_)

    [seen] = aws.seen
    assert seen.headers["x-amz-security-token"] == TOKEN
    assert seen.headers["authorization"] == _authorization(seen, service)


async def test_when_there_is_no_token_then_none_is_signed_or_sent(
    aws: FakeAws, connect: Connect
) -> None:
    credentials = Credentials(access_key_id=ACCESS_KEY_ID, secret_access_key=SECRET)

    await connect(credentials=credentials).call("sqs", "list_queues", {})

    [seen] = aws.seen
    assert "x-amz-security-token" not in seen.headers
    assert seen.headers["authorization"] == _authorization(seen, "sqs")


@pytest.mark.parametrize("path", ["/", "/aws", "/aws/sqs/", "/a%20b"])
async def test_when_the_endpoint_has_a_path_then_it_is_signed_as_sqs_wants_it(
    aws: FakeAws, connect: Connect, path: str
) -> None:
    await connect(endpoint_url=f"{aws.url}{path}").call("sqs", "list_queues", {})

    [seen] = aws.seen
    assert seen.path == path
    assert seen.headers["authorization"] == _authorization(seen, "sqs")


async def test_when_a_call_is_tried_again_then_it_is_signed_anew(
    aws: FakeAws, connect: Connect
) -> None:
    """R52: a signature counts for minutes only."""
    aws.script.append(Answer(status=500))

    await connect().call("s3", "put_object", {"Bucket": "bucket", "Key": "k", "Body": b"x"})

    for seen in aws.seen:
        assert seen.headers["authorization"] == _authorization(seen, "s3")
