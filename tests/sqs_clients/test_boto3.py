"""boto3 works on `pump local` unchanged: every operation, paginators, resources (R44)."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest

from tests.brokers.aws_account import AwsAccount

pytestmark = pytest.mark.broker


def session(account: AwsAccount) -> boto3.Session:
    return boto3.Session(
        aws_access_key_id=account.access_key_id,
        aws_secret_access_key=account.secret_access_key,
        region_name=account.region,
    )


@pytest.fixture
def sqs(local_aws: AwsAccount) -> Iterator[Any]:
    client = session(local_aws).client("sqs", endpoint_url=local_aws.endpoint_url)
    yield client
    client.close()


@pytest.fixture
def queue(sqs: Any) -> str:
    return str(sqs.create_queue(QueueName="orders")["QueueUrl"])


def arn_of(sqs: Any, url: str) -> str:
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    return str(found["Attributes"]["QueueArn"])


def test_when_a_message_makes_its_whole_way_then_every_step_is_understood(
    sqs: Any, queue: str, local_aws: AwsAccount
) -> None:
    attributes = {
        "text": {"DataType": "String", "StringValue": "grüße"},
        "number": {"DataType": "Number", "StringValue": "3.14"},
        "bytes": {"DataType": "Binary.png", "BinaryValue": b"\x00\xff"},
    }

    sent = sqs.send_message(QueueUrl=queue, MessageBody="höllo", MessageAttributes=attributes)
    [received] = sqs.receive_message(
        QueueUrl=queue, MessageAttributeNames=["All"], MessageSystemAttributeNames=["All"]
    )["Messages"]
    handle = received["ReceiptHandle"]
    sqs.change_message_visibility(QueueUrl=queue, ReceiptHandle=handle, VisibilityTimeout=100)
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=handle)

    assert received["MessageId"] == sent["MessageId"]
    assert received["Body"] == "höllo"
    assert received["MessageAttributes"] == attributes
    assert received["Attributes"]["ApproximateReceiveCount"] == "1"
    assert queue == f"{local_aws.endpoint_url}/{local_aws.account_id}/orders"


def test_when_batches_are_used_then_each_entry_has_its_result(sqs: Any, queue: str) -> None:
    entries = [{"Id": str(number), "MessageBody": f"body {number}"} for number in range(10)]

    sent = sqs.send_message_batch(QueueUrl=queue, Entries=entries)
    received = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10)["Messages"]
    handles = [
        {"Id": str(number), "ReceiptHandle": each["ReceiptHandle"]}
        for number, each in enumerate(received)
    ]
    changed = sqs.change_message_visibility_batch(
        QueueUrl=queue, Entries=[{**each, "VisibilityTimeout": 60} for each in handles]
    )
    deleted = sqs.delete_message_batch(QueueUrl=queue, Entries=handles)

    assert {each["Body"] for each in received} == {f"body {number}" for number in range(10)}
    for result in (sent, changed, deleted):
        assert sorted(each["Id"] for each in result["Successful"]) == sorted("0123456789")
        assert result.get("Failed", []) == []


def test_when_a_queue_is_looked_after_then_every_operation_answers(sqs: Any, queue: str) -> None:
    sqs.set_queue_attributes(QueueUrl=queue, Attributes={"VisibilityTimeout": "7"})
    sqs.tag_queue(QueueUrl=queue, Tags={"team": "a", "cost": "b"})
    sqs.untag_queue(QueueUrl=queue, TagKeys=["cost"])
    sqs.add_permission(
        QueueUrl=queue, Label="send", AWSAccountIds=["111122223333"], Actions=["SendMessage"]
    )
    found = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])["Attributes"]
    sqs.remove_permission(QueueUrl=queue, Label="send")
    sqs.purge_queue(QueueUrl=queue)

    assert found["VisibilityTimeout"] == "7"
    assert json.loads(found["Policy"])["Statement"][0]["Sid"] == "send"
    assert sqs.list_queue_tags(QueueUrl=queue)["Tags"] == {"team": "a"}
    assert sqs.get_queue_url(QueueName="orders")["QueueUrl"] == queue
    assert sqs.list_queues()["QueueUrls"] == [queue]

    sqs.delete_queue(QueueUrl=queue)

    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        sqs.get_queue_url(QueueName="orders")


def test_when_dead_letters_are_moved_back_then_the_task_can_be_followed(
    sqs: Any, queue: str
) -> None:
    dead = sqs.create_queue(QueueName="dead")["QueueUrl"]
    policy = {"deadLetterTargetArn": arn_of(sqs, dead), "maxReceiveCount": "5"}
    sqs.set_queue_attributes(QueueUrl=queue, Attributes={"RedrivePolicy": json.dumps(policy)})
    sqs.send_message(QueueUrl=dead, MessageBody="again")

    started = sqs.start_message_move_task(
        SourceArn=arn_of(sqs, dead), DestinationArn=arn_of(sqs, queue)
    )
    [moved] = sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=10)["Messages"]
    [task] = sqs.list_message_move_tasks(SourceArn=arn_of(sqs, dead))["Results"]

    assert started["TaskHandle"]
    assert moved["Body"] == "again"
    assert task["SourceArn"] == arn_of(sqs, dead)
    assert sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [queue]
    with pytest.raises(sqs.exceptions.ClientError):
        sqs.cancel_message_move_task(TaskHandle="no such task")


def test_when_lists_are_long_then_paginators_see_all_of_them(sqs: Any, queue: str) -> None:
    policy = json.dumps({"deadLetterTargetArn": arn_of(sqs, queue), "maxReceiveCount": "3"})
    made = [
        sqs.create_queue(QueueName=f"part-{number}", Attributes={"RedrivePolicy": policy})
        for number in range(7)
    ]

    pages = list(
        sqs.get_paginator("list_queues").paginate(
            QueueNamePrefix="part-", PaginationConfig={"PageSize": 3}
        )
    )
    sources = sqs.get_paginator("list_dead_letter_source_queues").paginate(
        QueueUrl=queue, PaginationConfig={"PageSize": 2}
    )

    urls = {each["QueueUrl"] for each in made}
    assert [len(page["QueueUrls"]) for page in pages] == [3, 3, 1]
    assert {url for page in pages for url in page["QueueUrls"]} == urls
    assert {url for page in sources for url in page.get("queueUrls", [])} == urls


def test_when_resources_are_used_then_queues_and_messages_are_objects(
    local_aws: AwsAccount,
) -> None:
    resource = session(local_aws).resource("sqs", endpoint_url=local_aws.endpoint_url)
    queue = resource.create_queue(
        QueueName="orders.fifo", Attributes={"FifoQueue": "true", "VisibilityTimeout": "9"}
    )

    queue.send_message(MessageBody="one", MessageGroupId="g", MessageDeduplicationId="1")
    [message] = queue.receive_messages(AttributeNames=["All"], WaitTimeSeconds=1)
    message.change_visibility(VisibilityTimeout=30)
    message.delete()

    assert message.body == "one"
    assert message.attributes["MessageGroupId"] == "g"
    assert queue.attributes["VisibilityTimeout"] == "9"
    assert [each.url for each in resource.queues.all()] == [queue.url]
    assert resource.get_queue_by_name(QueueName="orders.fifo") == queue
    resource.meta.client.close()


def test_when_a_url_is_presigned_then_a_plain_get_can_use_it(
    sqs: Any, queue: str, local_aws: AwsAccount
) -> None:
    """Only the query protocol puts a call into a URL; botocore can sign one. Where signatures are
    not checked it may look and change nothing, since a page in a browser could have made it.
    """
    sqs.send_message(QueueUrl=queue, MessageBody="hello")
    asked = {"Version": "2012-11-05", "AttributeName.1": "ApproximateNumberOfMessages"}
    signer = SigV4QueryAuth(session(local_aws).get_credentials(), "sqs", local_aws.region)
    looking = AWSRequest("GET", queue, params={"Action": "GetQueueAttributes", **asked})
    receiving = AWSRequest("GET", queue, params={"Action": "ReceiveMessage", **asked})

    for request in (looking, receiving):
        signer.add_auth(request)
    with urllib.request.urlopen(looking.prepare().url) as answer:
        text = answer.read().decode()
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(receiving.prepare().url)

    assert "<Value>1</Value>" in text
    assert refused.value.code == 403
    refused.value.close()
