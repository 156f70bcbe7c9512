"""What a FIFO queue takes for the same message, as AWS does."""

from __future__ import annotations

import pytest

from .bench import CONTENT, FIFO, Bench

pytestmark = pytest.mark.broker

PER_GROUP = {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}


@pytest.mark.parametrize(("kind", "ids"), [(CONTENT, {}), (FIFO, {"MessageDeduplicationId": "d"})])
@pytest.mark.parametrize("second_group", ["g1", "g2"])
def test_when_a_message_is_sent_twice_then_it_arrives_once(
    bench: Bench, kind: dict[str, str], ids: dict[str, str], second_group: str
) -> None:
    url = bench.make(**kind)

    first = bench.send(url, '{"foo": "bar"}', MessageGroupId="g1", **ids)
    second = bench.send(url, '{"foo": "bar"}', MessageGroupId=second_group, **ids)

    received = bench.receive(url)
    assert [each["MD5OfBody"] for each in received] == ["94232c5b8fc9272f6f73a1e36eb68fcf"]
    assert second["MessageId"] == first["MessageId"]


@pytest.mark.parametrize(("kind", "ids"), [(CONTENT, {}), (FIFO, {"MessageDeduplicationId": "d"})])
def test_when_the_first_was_deleted_then_the_second_is_still_the_same(
    bench: Bench, kind: dict[str, str], ids: dict[str, str]
) -> None:
    url = bench.make(**kind)
    bench.send(url, MessageGroupId="g", **ids)
    bench.delete(url, bench.receive_one(url))

    bench.send(url, MessageGroupId="g", **ids)

    assert bench.receive(url) == []


def test_when_an_id_is_given_then_it_counts_more_than_the_content(bench: Bench) -> None:
    url = bench.make(**CONTENT)

    for number in ("1", "2"):
        bench.send(url, "same", MessageGroupId="g", MessageDeduplicationId=number)
    bench.send(url, "other", MessageGroupId="g", MessageDeduplicationId="1")

    assert bench.bodies(url) == ["same", "same"]


def test_when_only_attributes_differ_then_the_content_is_the_same(bench: Bench) -> None:
    url = bench.make(**CONTENT)

    for value in ("1", "2"):
        attributes = {"n": {"DataType": "String", "StringValue": value}}
        bench.send(url, MessageGroupId="g", MessageAttributes=attributes)

    assert len(bench.receive(url)) == 1


def test_when_the_scope_is_the_group_then_groups_do_not_share_ids(bench: Bench) -> None:
    url = bench.make(**FIFO, **PER_GROUP)

    for group in ("g1", "g2", "g1"):
        bench.send(url, group, MessageGroupId=group, MessageDeduplicationId="same")

    assert sorted(bench.bodies(url)) == ["g1", "g2"]


def test_when_the_scope_was_just_changed_then_groups_still_share_ids(bench: Bench) -> None:
    """Recorded on AWS, which allows itself a minute for a change."""
    url = bench.make(**FIFO)
    bench.set(url, **PER_GROUP)

    for group in ("g1", "g2"):
        bench.send(url, group, MessageGroupId=group, MessageDeduplicationId="same")

    assert bench.bodies(url) == ["g1"]


def test_when_a_batch_repeats_a_message_then_it_arrives_once(bench: Bench) -> None:
    url = bench.make(**CONTENT)
    batch = [{"Id": each, "MessageBody": "same", "MessageGroupId": "g"} for each in "ab"]

    answer = bench.sqs.send_message_batch(QueueUrl=url, Entries=batch)

    assert len({each["MessageId"] for each in answer["Successful"]}) == 1
    assert len(answer["Successful"]) == 2
    assert len(bench.receive(url)) == 1


def test_when_the_queue_is_purged_then_its_ids_are_forgotten(bench: Bench) -> None:
    url = bench.make(**FIFO)
    ids = {"MessageGroupId": "g", "MessageDeduplicationId": "d"}
    bench.send(url, "message-1", **ids)

    bench.sqs.purge_queue(QueueUrl=url)
    bench.send(url, "message-2", **ids)

    assert bench.bodies(url) == ["message-2"]
