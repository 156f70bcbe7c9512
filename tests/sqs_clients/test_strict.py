"""`pump local --strict` makes clients wait where AWS does (R44)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.brokers.aws_account import AwsAccount
from tests.brokers.pump_local import PumpLocal

pytestmark = pytest.mark.broker


@pytest.fixture
def sqs(own_pump_local: Callable[..., PumpLocal], no_aws_settings: None) -> Iterator[Any]:
    client = AwsAccount(endpoint_url=own_pump_local("--strict").url).client("sqs")
    yield client
    client.close()


def test_when_a_queue_was_just_deleted_then_its_name_is_not_free_yet(sqs: Any) -> None:
    sqs.delete_queue(QueueUrl=sqs.create_queue(QueueName="orders")["QueueUrl"])

    with pytest.raises(ClientError) as caught:
        sqs.create_queue(QueueName="orders")

    error = caught.value.response["Error"]
    assert error["Code"] == "AWS.SimpleQueueService.QueueDeletedRecently"
    assert error["Message"] == (
        "You must wait 60 seconds after deleting a queue before you can create another with the "
        "same name."
    )


def test_when_a_queue_was_just_purged_then_it_cannot_be_again_yet(sqs: Any) -> None:
    url = sqs.create_queue(QueueName="orders")["QueueUrl"]
    sqs.purge_queue(QueueUrl=url)

    with pytest.raises(ClientError) as caught:
        sqs.purge_queue(QueueUrl=url)

    answer = caught.value.response
    assert answer["Error"]["Code"] == "AWS.SimpleQueueService.PurgeQueueInProgress"
    assert answer["Error"]["Message"] == (
        "Only one PurgeQueue operation on orders is allowed every 60 seconds."
    )
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 403
