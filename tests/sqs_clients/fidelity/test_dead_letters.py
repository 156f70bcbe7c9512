"""Messages that were received too often go to the dead-letter queue, as on AWS."""

from __future__ import annotations

import json

import pytest

from .bench import CONTENT, FIFO, Bench

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("max_receives", [1, 2])
def test_when_received_too_often_then_the_next_receive_moves_it(
    bench: Bench, max_receives: int
) -> None:
    url, dead = bench.make_with_dead_letters(max_receives, VisibilityTimeout="0")
    sent = bench.send(url)

    counts = [len(bench.receive(url)) for _ in range(max_receives + 1)]

    message = bench.receive_one(dead)
    assert counts == [1] * max_receives + [0]
    assert message["MessageId"] == sent["MessageId"]
    assert message["Body"] == "body"
    assert bench.counts(url) == (0, 0, 0)


def test_when_it_is_moved_then_it_is_as_it_was_and_tells_its_source(bench: Bench) -> None:
    url, dead = bench.make_with_dead_letters(VisibilityTimeout="0")
    attributes = {"k": {"DataType": "String", "StringValue": "v"}}
    bench.send(url, MessageAttributes=attributes)

    before = bench.receive_one(url, AttributeNames=["All"])["Attributes"]
    bench.receive(url)
    message = bench.receive_one(dead, AttributeNames=["All"], MessageAttributeNames=["All"])

    found = message["Attributes"]
    assert message["MessageAttributes"] == attributes
    assert found["DeadLetterQueueSourceArn"] == bench.arn(url)
    assert found["SentTimestamp"] == before["SentTimestamp"]
    # AWS's reference: the number of times it "has been received across all queues".
    assert found["ApproximateReceiveCount"] == "2"
    assert "DeadLetterQueueSourceArn" not in before


def test_when_a_fifo_queue_has_dead_letters_then_they_keep_id_and_group(bench: Bench) -> None:
    url, dead = bench.make_with_dead_letters(2, **CONTENT)
    sent = bench.send(url, "foobar", MessageGroupId="1")

    for _ in range(3):
        bench.receive(url, VisibilityTimeout=0)

    message = bench.receive_one(dead, AttributeNames=["All"])
    assert (message["MessageId"], message["Body"]) == (sent["MessageId"], "foobar")
    assert message["Attributes"]["MessageGroupId"] == "1"


def test_when_a_groups_first_message_dies_then_the_next_one_comes(bench: Bench) -> None:
    url, dead = bench.make_with_dead_letters(1, **CONTENT)
    bench.send_all(url, "g1-m1", "g1-m2")

    first = bench.bodies(url, 1, VisibilityTimeout=0)
    second = bench.bodies(url, 1, VisibilityTimeout=0)

    assert (first, second) == (["g1-m1"], ["g1-m2"])
    assert bench.bodies(dead) == ["g1-m1"]


def test_when_dead_letters_have_dead_letters_then_the_chain_is_followed(bench: Bench) -> None:
    last = bench.make(VisibilityTimeout="0")
    middle = bench.make(VisibilityTimeout="0", RedrivePolicy=bench.redrive(last, 1))
    first = bench.make(VisibilityTimeout="0", RedrivePolicy=bench.redrive(middle, 1))
    bench.send(first)

    bench.receive(first)
    bench.receive(first)
    # It has been received once already, and once more here.
    bench.receive(middle)
    bench.receive(middle)

    assert len(bench.receive(last)) == 1


def test_when_a_queue_has_sources_then_they_are_listed(bench: Bench) -> None:
    dead = bench.make()
    sources = [bench.make(RedrivePolicy=bench.redrive(dead, 50)) for _ in range(2)]

    answer = bench.sqs.list_dead_letter_source_queues(QueueUrl=dead)

    assert sorted(answer["queueUrls"]) == sorted(sources)


def test_when_a_queue_has_no_sources_then_the_list_is_empty(bench: Bench) -> None:
    answer = bench.sqs.list_dead_letter_source_queues(QueueUrl=bench.make())

    assert answer.get("queueUrls", []) == []


@pytest.mark.parametrize("permission", ["denyAll", "byQueue"])
def test_when_the_dead_letter_queue_denies_it_then_it_cannot_be_used(
    bench: Bench, permission: str
) -> None:
    dead = bench.make()
    policy: dict[str, object] = {"redrivePermission": permission}
    if permission == "byQueue":
        policy["sourceQueueArns"] = [bench.arn(bench.make())]
    bench.set(dead, RedriveAllowPolicy=json.dumps(policy))

    refusal = bench.refused(
        "set_queue_attributes",
        QueueUrl=bench.make(),
        Attributes={"RedrivePolicy": bench.redrive(dead, 1)},
    )

    assert refusal.code == "InvalidParameterValue"


@pytest.mark.parametrize("kind", [{}, FIFO])
def test_when_the_dead_letter_queue_is_made_first_then_create_can_name_it(
    bench: Bench, kind: dict[str, str]
) -> None:
    url, dead = bench.make_with_dead_letters(50, **kind)

    found = json.loads(bench.attributes(url, "RedrivePolicy")["RedrivePolicy"])

    assert found == {"deadLetterTargetArn": bench.arn(dead), "maxReceiveCount": 50}
