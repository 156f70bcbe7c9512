"""An AWS account of a test's own on the shared server: what it makes there, nobody else sees."""

from __future__ import annotations

import secrets
from typing import Any
from urllib.parse import urlsplit

import attrs
import localstack_client.session

REGION = "eu-west-1"


@attrs.frozen(kw_only=True)
class AwsAccount:
    """Where a test finds its queues, topics and buckets, and as whom.

    LocalStack takes an access key id of twelve digits for the account's number. Bucket names
    are one space for all accounts, as on AWS: put `account_id` into them.
    """

    endpoint_url: str
    region: str = REGION
    access_key_id: str = attrs.field(factory=lambda: _some_account_id())
    secret_access_key: str = attrs.field(default="not-a-secret", repr=False)

    @property
    def account_id(self) -> str:
        return self.access_key_id

    def client(self, service: str, **options: Any) -> Any:
        """A plain boto3 client, for a look at the server that owes nothing to our gateways."""
        session = localstack_client.session.Session(
            aws_access_key_id=self.access_key_id,
            aws_secret_access_key=self.secret_access_key,
            region_name=self.region,
            localstack_host=urlsplit(self.endpoint_url).netloc,
        )
        return session.client(service, **options)

    def through(self, endpoint_url: str) -> AwsAccount:
        """The same account behind another door, such as a fault proxy."""
        return attrs.evolve(self, endpoint_url=endpoint_url)


def delete_queues(account: AwsAccount) -> None:
    """Remove the account's queues, so that the server's sweeps stay short during a long run."""
    sqs = account.client("sqs")
    try:
        for page in sqs.get_paginator("list_queues").paginate():
            for url in page.get("QueueUrls", []):
                sqs.delete_queue(QueueUrl=url)
    finally:
        sqs.close()


def _some_account_id() -> str:
    # Not `random`: pytest-randomly gives every worker and every test the same seed.
    return str(10**11 + secrets.randbelow(9 * 10**11))
