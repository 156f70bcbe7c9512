"""What the kill tests on S3 share: a bucket on LocalStack, and credentials in the environment."""

from __future__ import annotations

import pytest

from tests.brokers.aws_account import AwsAccount

from .s3_processes import Bucket


@pytest.fixture
def bucket(aws: AwsAccount, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """An empty bucket; the test's own process and its children find the credentials."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", aws.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", aws.secret_access_key)
    return Bucket.make(aws)
