"""Settings of the S3 gateway, from arguments and from a URL (R2, R77)."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from gateways.s3 import (
    AwsSettings,
    Layout,
    S3Gateway,
    S3QueueSettings,
    S3Settings,
    TransportKind,
    from_url,
)
from gateways.s3.gateway import PACKAGES
from pump import App
from pump.errors import ConfigurationError


def test_when_a_url_names_everything_then_everything_is_set() -> None:
    """R55."""
    url = (
        "s3://my-bucket/team/production/?region=eu-west-1&endpoint=http://127.0.0.1:4566"
        "&transport=boto3&layout=log&poll=0.25&probe=false&max_connections=10&max_attempts=2"
    )

    assert S3Settings.from_url(url) == S3Settings(
        bucket="my-bucket",
        prefix="team/production",
        aws=AwsSettings(
            region="eu-west-1",
            endpoint_url="http://127.0.0.1:4566",
            transport=TransportKind.BOTO3,
            max_connections=10,
            max_attempts=2,
        ),
        layout=Layout.LOG,
        queue=S3QueueSettings(poll_s=0.25),
        probe=False,
    )


def test_when_a_url_names_only_a_bucket_then_the_rest_is_as_by_default() -> None:
    """R55."""
    assert S3Settings.from_url("s3://my-bucket") == S3Settings(bucket="my-bucket")
    assert S3Settings(bucket="my-bucket").aws.max_connections == 128


def test_when_a_profile_is_named_then_it_is_used() -> None:
    """R55."""
    assert S3Settings.from_url("s3://b?profile=dev").aws.profile == "dev"


@pytest.mark.parametrize(("prefix", "root"), [("", ""), ("a", "a/"), ("a/", "a/"), ("a/b", "a/b/")])
def test_when_there_is_a_prefix_then_keys_begin_with_it_and_one_slash(
    prefix: str, root: str
) -> None:
    """R55."""
    assert S3Settings(bucket="b", prefix=prefix).root == root


def test_when_a_prefix_is_encoded_in_a_url_then_it_is_decoded() -> None:
    """R55."""
    assert S3Settings.from_url("s3://b/a%20b/c").prefix == "a b/c"


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        ("s3://", "use s3://BUCKET/PREFIX"),
        ("s3:///prefix", "use s3://BUCKET/PREFIX"),
        ("sqs://bucket", "use s3://BUCKET/PREFIX"),
        ("s3://bucket#part", "use s3://BUCKET/PREFIX"),
        ("s3://bucket?colour=red", "unknown colour; known: region"),
        ("s3://bucket?layout=heap", "use leases or log"),
        ("s3://bucket?poll=soon", "use a number of seconds"),
        ("s3://bucket?poll=0", "seconds over 0"),
        ("s3://bucket?probe=maybe", "use true or false"),
        ("s3://bucket?transport=curl", "use boto3 or aioboto3"),
        ("s3://bucket?max_connections=many", "use a whole number"),
        ("s3://bucket/a//b", "names with slashes between them"),
        ("s3://bucket/../b", "names with slashes between them"),
    ],
)
def test_when_a_url_cannot_work_then_the_error_names_the_remedy(url: str, remedy: str) -> None:
    """R56."""
    with pytest.raises(ConfigurationError) as caught:
        S3Settings.from_url(url)

    assert remedy in str(caught.value)


def test_when_credentials_are_in_a_url_then_they_are_refused_and_not_repeated() -> None:
    """R57."""
    with pytest.raises(ConfigurationError) as caught:
        S3Settings.from_url("s3://key:secret@bucket")

    assert "keep credentials out" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"bucket": ""},
        {"bucket": "a/b"},
        {"bucket": None},
        {"prefix": "/a"},
        {"prefix": "a/./b"},
        {"prefix": "x" * 301},
        {"prefix": None},
        {"layout": "heap"},
        {"probe": "yes"},
        {"patience_s": 0},
        {"patience_s": "long"},
        {"queue": S3QueueSettings(poll_s=0)},
        {"queue": S3QueueSettings(look_again_s=-1)},
        {"queue": S3QueueSettings(cache_bytes=-1)},
        {"queue": S3QueueSettings(linger_s=0)},
        {"queue": S3QueueSettings(linger_s=20.0)},
        {"patience_s": 60.0},
    ],
    ids=str,
)
def test_when_a_setting_cannot_work_then_it_is_named(fields: dict[str, Any]) -> None:
    """R56."""
    with pytest.raises(ConfigurationError) as caught:
        S3Settings(**{"bucket": "bucket", **fields})

    assert caught.value.field.startswith("S3Settings.")


def test_when_settings_are_sent_to_another_process_then_they_arrive_whole() -> None:
    """R55: workers are started with them."""
    settings = S3Settings.from_url("s3://bucket/prefix?layout=log")

    assert pickle.loads(pickle.dumps(settings)) == settings


@pytest.mark.parametrize("layout", list(Layout))
def test_when_a_gateway_is_made_from_a_url_then_it_says_what_its_layout_can(
    layout: Layout,
) -> None:
    """R76: of the queues that it makes without asking."""
    gateway = from_url(f"s3://bucket?layout={layout.value}")

    assert isinstance(gateway, S3Gateway)
    assert gateway.capabilities.has_groups == (layout is Layout.LOG)
    assert gateway.capabilities.has_deduplication == (layout is Layout.LOG)
    assert gateway.capabilities.spans_machines


def test_when_an_app_names_a_bucket_then_it_finds_this_gateway() -> None:
    """R55: through the entry point."""
    assert isinstance(App("s3://bucket/prefix").built_gateway(), S3Gateway)


@pytest.mark.parametrize(
    ("package", "version"), [("boto3", "1.35.99"), ("aioboto3", "13.4.0"), ("boto3", None)]
)
def test_when_an_sdk_is_too_old_for_conditions_then_the_error_says_what_to_install(
    package: str, version: str | None
) -> None:
    """R77."""
    with pytest.raises(ConfigurationError, match=r"pumphouse\[s3\]"):
        PACKAGES.check(package, version)


def test_when_an_sdk_is_new_enough_then_it_will_do() -> None:
    """R77."""
    PACKAGES.check("boto3", "1.36.0")
    PACKAGES.check("aioboto3", "15.5.0")
