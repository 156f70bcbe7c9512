"""Settings of the SQS gateway from a URL (R55, R56, R57)."""

from __future__ import annotations

import pickle

import pytest

from gateways.sqs import AwsSettings, ClaimCheck, SqsSettings, TransportKind
from pump.errors import ConfigurationError


def test_when_a_url_says_everything_then_the_settings_have_it() -> None:
    settings = SqsSettings.from_url(
        "sqs://eu-west-1?endpoint=http://127.0.0.1:4566&profile=dev&transport=lean"
        "&max_connections=10&max_attempts=2&owner=123456789012&prefix=shop-"
        "&claim_bucket=bodies&claim_prefix=a/&claim_threshold=1000"
    )

    assert settings == SqsSettings(
        aws=AwsSettings(
            region="eu-west-1",
            endpoint_url="http://127.0.0.1:4566",
            profile="dev",
            transport=TransportKind.LEAN,
            max_connections=10,
            max_attempts=2,
        ),
        owner="123456789012",
        prefix="shop-",
        claim_check=ClaimCheck(bucket="bodies", prefix="a/", threshold_bytes=1000),
    )
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_when_a_url_says_nothing_then_the_sdk_finds_the_region() -> None:
    assert SqsSettings.from_url("sqs://") == SqsSettings()


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        ("s3://bucket", "use sqs://REGION"),
        ("sqs://eu-west-1/orders", "use sqs://REGION"),
        ("sqs://[eu-west-1", "use sqs://REGION"),
        ("sqs://eu-west-1?colour=red", "unknown colour; known: endpoint, profile"),
        ("sqs://eu-west-1?transport=curl", "use boto3 or aioboto3 or lean"),
        ("sqs://eu-west-1?max_connections=many", "use a whole number"),
        ("sqs://eu-west-1?max_connections=-1", "use a whole number from 2"),
        ("sqs://eu-west-1?owner=ada", "use a 12-digit account id"),
        ("sqs://eu-west-1?claim_bucket=b&claim_threshold=much", "use a whole number"),
        ("sqs://eu-west-1?claim_prefix=a", "need a claim_bucket"),
    ],
)
def test_when_a_url_cannot_work_then_the_error_names_the_remedy(url: str, remedy: str) -> None:
    """R56."""
    with pytest.raises(ConfigurationError) as refused:
        SqsSettings.from_url(url)

    assert remedy in str(refused.value)


def test_when_credentials_are_in_a_url_then_they_are_refused_and_not_repeated() -> None:
    """R57."""
    with pytest.raises(ConfigurationError) as refused:
        SqsSettings.from_url("sqs://key:s3cret@eu-west-1")

    assert "keep credentials out" in str(refused.value)
    assert "s3cret" not in str(refused.value)
