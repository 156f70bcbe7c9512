"""ListQueues, GetQueueUrl and DeleteQueue, in accounts and regions, as on AWS."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tests.brokers.aws_account import AwsAccount

from .bench import Bench
from .clients import open_client

pytestmark = pytest.mark.broker

NO_QUEUE = "AWS.SimpleQueueService.NonExistentQueue"


def listed(bench: Bench, **request: Any) -> list[str]:
    return list(bench.sqs.list_queues(**request).get("QueueUrls", []))


def test_when_a_prefix_is_given_then_only_such_names_are_listed(bench: Bench) -> None:
    run = bench.name()
    urls = [bench.make(f"{run}-{name}") for name in ("a-1", "a-2", "b-1")]

    assert sorted(listed(bench, QueueNamePrefix=f"{run}-a")) == urls[:2]
    assert listed(bench, QueueNamePrefix=f"{run}-b") == urls[2:]
    assert listed(bench, QueueNamePrefix=f"{run}-c") == []
    assert set(listed(bench)) >= set(urls)


def test_when_a_list_is_paged_then_tokens_lead_to_the_end_of_it(bench: Bench) -> None:
    run = bench.name()
    urls = [bench.make(f"{run}-{number}") for number in range(3)]

    first = bench.sqs.list_queues(QueueNamePrefix=run, MaxResults=2)
    second = bench.sqs.list_queues(QueueNamePrefix=run, MaxResults=2, NextToken=first["NextToken"])

    assert len(first["QueueUrls"]) == 2
    assert sorted(first["QueueUrls"] + second["QueueUrls"]) == urls
    assert "NextToken" not in second


@pytest.mark.parametrize("count", [0, 1001])
def test_when_a_page_is_too_small_or_too_large_then_it_is_refused(bench: Bench, count: int) -> None:
    assert bench.refused("list_queues", MaxResults=count).code == "InvalidParameterValue"


def test_when_a_queue_is_asked_for_by_name_then_its_url_comes(bench: Bench) -> None:
    url = bench.make()

    answer = bench.sqs.get_queue_url(QueueName=url.rpartition("/")[2])

    assert answer["QueueUrl"] == url


@pytest.mark.parametrize(
    ("operation", "more"),
    [
        ("get_queue_attributes", {"AttributeNames": ["All"]}),
        ("set_queue_attributes", {"Attributes": {"DelaySeconds": "1"}}),
        ("send_message", {"MessageBody": "body"}),
        ("send_message_batch", {"Entries": [{"Id": "1", "MessageBody": "body"}]}),
        ("receive_message", {}),
        ("delete_message", {"ReceiptHandle": "handle"}),
        ("delete_message_batch", {"Entries": [{"Id": "1", "ReceiptHandle": "handle"}]}),
        ("change_message_visibility", {"ReceiptHandle": "handle", "VisibilityTimeout": 1}),
        ("purge_queue", {}),
        ("delete_queue", {}),
        ("tag_queue", {"Tags": {"a": "b"}}),
        ("untag_queue", {"TagKeys": ["a"]}),
        ("list_queue_tags", {}),
        ("list_dead_letter_source_queues", {}),
        ("remove_permission", {"Label": "a"}),
    ],
)
def test_when_a_queue_does_not_exist_then_every_operation_says_so(
    bench: Bench, operation: str, more: dict[str, Any]
) -> None:
    url = f"{bench.sqs.meta.endpoint_url}/{bench.account_id}/{bench.name()}"

    refusal = bench.refused(operation, QueueUrl=url, **more)

    message = "The specified queue does not exist."
    if bench.protocol == "query":
        message = "The specified queue does not exist for this wsdl version."
    assert (refusal.code, refusal.message, refusal.status) == (NO_QUEUE, message, 400)


def test_when_a_queue_is_not_there_then_it_has_no_url(bench: Bench) -> None:
    refusal = bench.refused("get_queue_url", QueueName=bench.name())

    assert refusal.code == NO_QUEUE
    assert refusal.message.startswith("The specified queue does not exist")


def test_when_a_queue_is_deleted_then_it_is_gone_with_its_messages(bench: Bench) -> None:
    url = bench.make()
    bench.send(url)

    bench.sqs.delete_queue(QueueUrl=url)

    assert bench.refused("receive_message", QueueUrl=url).code == NO_QUEUE
    assert url not in listed(bench)


def test_when_regions_differ_then_so_do_their_queues(
    json_bench: Bench, bench_account: AwsAccount
) -> None:
    elsewhere = open_client(attrs.evolve(bench_account, region="us-west-2"), "json")
    other = Bench(elsewhere, "json", bench_account.account_id, "us-west-2")
    name = json_bench.name()

    json_bench.send(json_bench.make(name), "here")
    there = other.make(name)

    assert other.receive(there) == []
    assert other.attributes(there, "QueueArn")["QueueArn"].split(":")[3] == "us-west-2"
    other.sweep()
    assert listed(json_bench, QueueNamePrefix=name)
    elsewhere.close()


def test_when_accounts_differ_then_a_queue_is_found_by_its_owner(
    json_bench: Bench, bench_account: AwsAccount
) -> None:
    stranger = open_client(AwsAccount(endpoint_url=bench_account.endpoint_url), "json")
    url = json_bench.make()
    name = url.rpartition("/")[2]

    found = stranger.get_queue_url(QueueName=name, QueueOwnerAWSAccountId=json_bench.account_id)
    stranger.send_message(QueueUrl=url, MessageBody="from a stranger")

    assert found["QueueUrl"] == url
    assert stranger.list_queues(QueueNamePrefix=name).get("QueueUrls", []) == []
    assert json_bench.bodies(url) == ["from a stranger"]
    stranger.close()
