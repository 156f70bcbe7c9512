"""The shared server and the accounts tests get on it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import aioboto3
import botocore.exceptions
import psutil
import pytest

from . import localstack as localstack_module
from .aws_account import AwsAccount
from .localstack import ROOT, LocalStack, LocalStackFailed, owned_folder, server_in

pytestmark = pytest.mark.broker


@pytest.fixture
def by_hand() -> Iterator[subprocess.Popen[str]]:
    """A second server, owned by a process of its own, as a test run that can be killed."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.brokers.localstack"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def listeners(port: int) -> list[psutil.Process]:
    """The processes that listen on the port, and a check that they do so on loopback only."""
    found = []
    for connection in psutil.net_connections("tcp"):
        is_open = connection.status == psutil.CONN_LISTEN
        if is_open and connection.laddr and connection.laddr.port == port:
            assert connection.laddr.ip == "127.0.0.1"
            found.append(psutil.Process(connection.pid))
    return found


def is_gone(server: psutil.Process) -> bool:
    """Whether the process ended; a moment may pass until the system has forgotten it."""
    gone, _ = psutil.wait_procs([server], timeout=30)
    return gone == [server]


def folder_of(server: psutil.Process) -> Path:
    return Path(server.cmdline()[-1])


def test_when_a_queue_is_made_then_its_url_names_the_server_and_the_account(
    aws: AwsAccount,
) -> None:
    url = aws.client("sqs").create_queue(QueueName="orders")["QueueUrl"]

    assert url == f"{aws.endpoint_url}/{aws.account_id}/orders"


async def test_when_boto3_sends_then_aioboto3_receives(aws: AwsAccount) -> None:
    sqs = aws.client("sqs")
    url = sqs.create_queue(QueueName="orders")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="1 anchor")

    session = aioboto3.Session(
        aws_access_key_id=aws.access_key_id,
        aws_secret_access_key=aws.secret_access_key,
        region_name=aws.region,
    )
    async with session.client("sqs", endpoint_url=aws.endpoint_url) as client:
        reply = await client.receive_message(QueueUrl=url, WaitTimeSeconds=5)

    assert [message["Body"] for message in reply["Messages"]] == ["1 anchor"]


def test_when_two_accounts_use_one_server_then_neither_sees_the_others_queue(
    aws: AwsAccount,
) -> None:
    other = AwsAccount(endpoint_url=aws.endpoint_url)
    aws.client("sqs").create_queue(QueueName="orders")

    with pytest.raises(botocore.exceptions.ClientError, match="NonExistentQueue"):
        other.client("sqs").get_queue_url(QueueName="orders")


def test_when_a_topic_has_a_filter_then_the_queue_gets_what_passes_it(aws: AwsAccount) -> None:
    # given
    sns, sqs = aws.client("sns"), aws.client("sqs")
    url = sqs.create_queue(QueueName="orders")["QueueUrl"]
    topic = sns.create_topic(Name="events")["TopicArn"]
    sns.subscribe(
        TopicArn=topic,
        Protocol="sqs",
        Endpoint=f"arn:aws:sqs:{aws.region}:{aws.account_id}:orders",
        Attributes={"FilterPolicy": json.dumps({"kind": ["placed"]})},
    )

    # when
    for kind in ("cancelled", "placed"):
        attributes = {"kind": {"DataType": "String", "StringValue": kind}}
        sns.publish(TopicArn=topic, Message=kind, MessageAttributes=attributes)

    # then
    [message] = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=5)["Messages"]
    assert json.loads(message["Body"])["Message"] == "placed"


def test_when_an_object_is_put_then_it_is_read_back(aws: AwsAccount) -> None:
    s3, bucket = aws.client("s3"), f"claims-{aws.account_id}"
    s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": aws.region})

    s3.put_object(Bucket=bucket, Key="body", Body=b"\x00\xff")

    assert s3.get_object(Bucket=bucket, Key="body")["Body"].read() == b"\x00\xff"


def test_when_the_developer_has_aws_settings_then_a_test_does_not_see_them(
    localstack: LocalStack, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "work")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")

    aws: AwsAccount = request.getfixturevalue("aws")

    assert aws.client("sqs").meta.endpoint_url == localstack.url


def test_when_the_server_runs_then_it_listens_on_loopback_only(localstack: LocalStack) -> None:
    [server] = listeners(localstack.port)

    assert os.getpgid(server.pid) == server.pid, "a group of its own"


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_when_the_owner_ends_in_any_way_then_no_server_and_no_folder_is_left(
    by_hand: subprocess.Popen[str], end: signal.Signals
) -> None:
    assert by_hand.stdout is not None
    port = int(by_hand.stdout.readline().rsplit(":", 1)[1])
    [server] = listeners(port)
    folder = folder_of(server)

    by_hand.send_signal(end)
    by_hand.wait(timeout=30)

    assert is_gone(server)
    assert not folder.exists()


def test_when_a_folder_is_asked_again_then_it_has_the_same_server(localstack: LocalStack) -> None:
    [server] = listeners(localstack.port)

    again = server_in(folder_of(server))

    assert again == localstack


def test_when_localstack_is_not_installed_then_the_error_names_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(localstack_module, "PYTHON", ROOT / ".venv-missing" / "bin" / "python")

    with owned_folder() as folder, pytest.raises(LocalStackFailed, match="make test-brokers"):
        server_in(folder)


def test_when_localstack_does_not_start_then_its_log_is_shown_to_everyone_who_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The tests' own Python has no LocalStack, so the server dies while it loads.
    monkeypatch.setattr(localstack_module, "PYTHON", Path(sys.executable))

    with owned_folder() as folder:
        for _ in range(2):
            with pytest.raises(LocalStackFailed, match="No module named 'twisted'"):
                server_in(folder)
