"""What is taken from botocore before a request: where it goes, and what it is signed for."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest
from botocore.client import BaseClient
from botocore.exceptions import EndpointConnectionError
from botocore.model import ServiceModel

from gateways._aws.lean.http_session import credentials_of, endpoint_of, link_of
from gateways._aws.lean.json_protocol import JsonProtocol
from gateways._aws.lean.s3 import RestS3
from gateways._aws.lean.signing import CredentialSource
from gateways._aws.sdk import make_client, make_session
from gateways._aws.settings import AwsSettings, Credentials, TransportKind
from pump.errors import ConfigurationError, ConnectionFailed, QueueNotFound

from ..conftest import ACCESS_KEY_ID, SECRET, TOKEN, Connect
from ..fake_aws import FakeAws, refusal


def _settings(**changes: Any) -> AwsSettings:
    usual: dict[str, Any] = {
        "region": "eu-west-1",
        "transport": TransportKind.BOTO3,
        "credentials": Credentials(
            access_key_id=ACCESS_KEY_ID, secret_access_key=SECRET, session_token=TOKEN
        ),
    }
    return AwsSettings(**(usual | changes))


def _client(service: str, **changes: Any) -> Any:
    settings = _settings(**changes)
    return make_client(make_session(settings), service, settings)


@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("eu-west-1", "sqs.eu-west-1.amazonaws.com"),
        ("cn-north-1", "sqs.cn-north-1.amazonaws.com.cn"),
        ("us-gov-west-1", "sqs.us-gov-west-1.amazonaws.com"),
    ],
)
def test_when_there_is_no_endpoint_then_the_region_has_one(region: str, host: str) -> None:
    """R34: partitions and all, by botocore's own rules."""
    endpoint = endpoint_of(_client("sqs", region=region), "ReceiveMessage", {})

    assert endpoint is not None
    assert (endpoint.base.scheme, endpoint.base.netloc) == ("https", host)


@pytest.mark.parametrize(
    ("bucket", "url"),
    [
        ("bucket", "https://bucket.s3.eu-west-1.amazonaws.com/a%20b/c"),
        ("dotted.bucket", "https://s3.eu-west-1.amazonaws.com/dotted.bucket/a%20b/c"),
        ("Old_Bucket", "https://s3.eu-west-1.amazonaws.com/Old_Bucket/a%20b/c"),
    ],
)
def test_when_a_bucket_can_be_a_host_then_it_is_one(bucket: str, url: str) -> None:
    """As the SDK chooses: certificates are for one level of names only."""
    planned = RestS3(_client("s3")).plan("get_object", {"Bucket": bucket, "Key": "a b/c"})

    assert planned is not None
    assert str(planned.url) == url


def test_when_the_profile_wants_buckets_in_the_path_then_they_are_there(tmp_path: Path) -> None:
    """R34: as the SDK by itself; a store of one's own often has no host name per bucket."""
    (tmp_path / "config").write_text("[profile work]\ns3 =\n  addressing_style = path\n")
    (tmp_path / "credentials").write_text(
        f"[work]\naws_access_key_id = AKIAWORK\naws_secret_access_key = {SECRET}\n"
    )
    client = _client("s3", credentials=None, profile="work")

    planned = RestS3(client).plan("get_object", {"Bucket": "bucket", "Key": "k"})

    assert planned is not None
    assert str(planned.url) == "https://s3.eu-west-1.amazonaws.com/bucket/k"


def test_when_a_bucket_is_a_host_then_requests_about_it_go_to_its_root() -> None:
    planned = RestS3(_client("s3")).plan("list_objects_v2", {"Bucket": "bucket", "Prefix": "é/"})

    assert planned is not None
    assert planned.signable.path == "/"
    assert str(planned.url) == (
        "https://bucket.s3.eu-west-1.amazonaws.com/?prefix=%C3%A9%2F&list-type=2&encoding-type=url"
    )


@pytest.mark.parametrize("bucket", ["bucket--euw1-az1--x-s3", "arn:aws:s3:::bucket", "", "a/b"])
def test_when_a_bucket_is_something_else_then_nothing_is_planned(bucket: str) -> None:
    planned = RestS3(_client("s3")).plan("get_object", {"Bucket": bucket, "Key": "k"})

    assert planned is None


@pytest.mark.parametrize(
    ("endpoint_url", "path"),
    [("http://localhost:4566", "/"), ("http://localhost/aws/sqs", "/aws/sqs")],
)
def test_when_an_endpoint_is_given_then_it_is_taken_with_its_path(
    endpoint_url: str, path: str
) -> None:
    client = _client("sqs", endpoint_url=endpoint_url)
    endpoint = endpoint_of(client, "ReceiveMessage", {})
    assert endpoint is not None

    planned = JsonProtocol(endpoint, client.meta.service_model).plan("list_queues", {})

    assert planned is not None
    assert planned.url.path == path
    assert planned.url.host == "localhost"


async def test_when_a_key_is_asked_for_then_it_is_the_clients() -> None:
    client = await asyncio.to_thread(_client, "sqs")

    key = await CredentialSource(credentials_of(client)).key()

    assert (key.access_key_id, key.secret_access_key) == (ACCESS_KEY_ID, SECRET)
    assert key.session_token == TOKEN


class _Unreachable:
    """Credentials of a role, when nobody answers who gives them."""

    def __init__(self) -> None:
        self.asked_count = 0

    def get_frozen_credentials(self) -> None:
        self.asked_count += 1
        raise EndpointConnectionError(endpoint_url="https://sts.example")


async def test_when_credentials_cannot_be_had_then_their_own_tries_are_enough(
    aws: FakeAws, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R34: botocore has tried already, and for long; an SDK's call does not begin again."""
    source = _Unreachable()
    monkeypatch.setattr("gateways._aws.lean.service.credentials_of", lambda _: source)

    with pytest.raises(ConnectionFailed, match=r"sts\.example"):
        await connect(max_attempts=4).call("sqs", "list_queues", {})

    assert source.asked_count == 1
    assert aws.seen == []


async def test_when_botocore_hides_what_is_needed_then_connecting_names_the_way_out(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R77: a release after ours, which nobody has tried."""
    monkeypatch.delattr(BaseClient, "_resolve_endpoint_ruleset")

    with pytest.raises(ConfigurationError, match=r"botocore=.*transport='aioboto3'"):
        await connect().call("sqs", "list_queues", {})


async def test_when_botocore_knows_one_protocol_a_service_then_that_is_spoken(
    aws: FakeAws, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So do the oldest releases that are allowed."""

    def as_of_old(sdk_client: Any) -> Any:
        sdk_client.meta.service_model.__dict__.pop("resolved_protocol", None)
        monkeypatch.delattr(ServiceModel, "resolved_protocol", raising=False)
        return credentials_of(sdk_client)

    # The last thing that is asked for before the service is made, and the client is there.
    monkeypatch.setattr("gateways._aws.lean.service.credentials_of", as_of_old)
    aws.script.append(refusal(400, "QueueDoesNotExist"))

    with pytest.raises(QueueNotFound):
        await connect().call("sqs", "list_queues", {})


def test_when_botocore_was_told_not_to_verify_then_neither_is_it_done_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R34: such a set-up works with the SDKs, at one's own risk."""
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "")

    assert link_of(_client("sqs"), _settings(), "agent").tls is False


def test_when_a_link_is_made_then_certificates_and_hosts_are_checked() -> None:
    link = link_of(_client("sqs"), _settings(), "agent")

    assert isinstance(link.tls, ssl.SSLContext)
    assert link.tls.check_hostname
    assert link.tls.verify_mode is ssl.CERT_REQUIRED
