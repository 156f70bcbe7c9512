"""The AWS CLI works on `pump local` unchanged, in both of SQS's protocols (R44).

The newest one speaks JSON. The other is the last whose botocore spoke the query protocol, so
XML answers are read by a real client too.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.brokers.aws_account import AwsAccount

from .environments import executable, settings

pytestmark = pytest.mark.broker

Aws = Callable[..., Any]


def run(aws: str, environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        # Said like this because the CLI before version 2 heeds no AWS_ENDPOINT_URL for SQS.
        [aws, "--endpoint-url", environment["AWS_ENDPOINT_URL_SQS"], "sqs", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(params=["awscli", "awscli-query"])
def aws_sqs(request: pytest.FixtureRequest, local_aws: AwsAccount, tmp_path: Path) -> Aws:
    """Run `aws sqs …` and read its JSON."""
    aws = executable(request.param, "aws")
    environment = settings(local_aws, tmp_path)

    def call(*arguments: str) -> Any:
        done = run(aws, environment, *arguments)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if done.stdout.strip() else None

    return call


@pytest.fixture(params=["awscli", "awscli-query"])
def refused(request: pytest.FixtureRequest, local_aws: AwsAccount, tmp_path: Path) -> Aws:
    """Run `aws sqs …`, which fails, and give what it says."""

    def call(*arguments: str) -> str:
        aws = executable(request.param, "aws")
        done = run(aws, settings(local_aws, tmp_path), *arguments)
        assert done.returncode != 0, done.stdout
        return done.stderr

    return call


def test_when_a_message_makes_its_whole_way_then_the_cli_shows_every_step(aws_sqs: Aws) -> None:
    queue = aws_sqs("create-queue", "--queue-name", "orders")["QueueUrl"]
    attributes = {
        "city": {"DataType": "String", "StringValue": "Köln & <Bonn>"},
        # The CLI takes bytes as they are, and shows them in base64.
        "picture": {"DataType": "Binary", "BinaryValue": "pixels"},
    }

    sent = aws_sqs(
        *("send-message", "--queue-url", queue, "--message-body", 'hello <&> "wörld"'),
        *("--message-attributes", json.dumps(attributes)),
    )
    [received] = aws_sqs(
        *("receive-message", "--queue-url", queue, "--message-attribute-names", "All"),
        *("--attribute-names", "All", "--wait-time-seconds", "5"),
    )["Messages"]
    aws_sqs(
        *("change-message-visibility", "--queue-url", queue, "--visibility-timeout", "60"),
        *("--receipt-handle", received["ReceiptHandle"]),
    )
    aws_sqs(
        *("delete-message", "--queue-url", queue),
        *("--receipt-handle", received["ReceiptHandle"]),
    )

    assert received["MessageId"] == sent["MessageId"]
    assert received["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert received["Body"] == 'hello <&> "wörld"'
    assert received["MessageAttributes"]["city"]["StringValue"] == "Köln & <Bonn>"
    assert received["MessageAttributes"]["picture"]["BinaryValue"] == "cGl4ZWxz"
    assert received["Attributes"]["ApproximateReceiveCount"] == "1"


def test_when_a_queue_is_looked_after_then_the_cli_shows_it(aws_sqs: Aws) -> None:
    queue = aws_sqs(
        *("create-queue", "--queue-name", "orders.fifo", "--tags", "team=a"),
        *("--attributes", "FifoQueue=true,VisibilityTimeout=5"),
    )["QueueUrl"]
    aws_sqs(
        *("set-queue-attributes", "--queue-url", queue),
        *("--attributes", "ContentBasedDeduplication=true"),
    )

    found = aws_sqs("get-queue-attributes", "--queue-url", queue, "--attribute-names", "All")
    listed = aws_sqs("list-queues", "--queue-name-prefix", "ord")
    tags = aws_sqs("list-queue-tags", "--queue-url", queue)
    url = aws_sqs("get-queue-url", "--queue-name", "orders.fifo")

    assert found["Attributes"]["FifoQueue"] == "true"
    assert found["Attributes"]["ContentBasedDeduplication"] == "true"
    assert found["Attributes"]["VisibilityTimeout"] == "5"
    assert listed["QueueUrls"] == [queue]
    assert tags["Tags"] == {"team": "a"}
    assert url == {"QueueUrl": queue}


def test_when_batches_are_sent_and_purged_then_the_cli_sees_both(aws_sqs: Aws) -> None:
    queue = aws_sqs("create-queue", "--queue-name", "orders")["QueueUrl"]
    entries = [{"Id": "a", "MessageBody": "1"}, {"Id": "b", "MessageBody": "\x01"}]

    sent = aws_sqs("send-message-batch", "--queue-url", queue, "--entries", json.dumps(entries))
    aws_sqs("purge-queue", "--queue-url", queue)
    left = aws_sqs("receive-message", "--queue-url", queue)
    aws_sqs("delete-queue", "--queue-url", queue)

    assert [each["Id"] for each in sent["Successful"]] == ["a"]
    assert [(each["Id"], each["SenderFault"]) for each in sent["Failed"]] == [("b", True)]
    assert (left or {}).get("Messages", []) == []


def test_when_something_is_wrong_then_the_cli_names_the_error(refused: Aws) -> None:
    nowhere = refused("get-queue-url", "--queue-name", "nowhere")
    invalid = refused("create-queue", "--queue-name", "not a name")

    assert "(AWS.SimpleQueueService.NonExistentQueue)" in nowhere
    assert "(InvalidParameterValue)" in invalid
