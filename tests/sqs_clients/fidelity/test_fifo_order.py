"""The order of FIFO queues and of their groups, as AWS shows it."""

from __future__ import annotations

import pytest

from .bench import CONTENT, FIFO, Bench, pause

pytestmark = pytest.mark.broker


def test_when_groups_interleave_then_a_receive_empties_one_group_first(bench: Bench) -> None:
    url = bench.make(**CONTENT)
    bench.send_all(url, "g1-m1", "g2-m1", "g1-m2", "g1-m3")

    assert bench.bodies(url) == ["g1-m1", "g1-m2", "g1-m3", "g2-m1"]


def test_when_a_part_of_a_group_is_in_flight_then_the_rest_of_it_waits(bench: Bench) -> None:
    url = bench.make(**CONTENT)
    bench.send_all(url, "g1-m1", "g1-m2", "g1-m3", "g2-m1", "g3-m1")

    first = bench.bodies(url, 2)
    second = bench.bodies(url, 1)
    rest = bench.bodies(url)

    assert (first, second, rest) == (["g1-m1", "g1-m2"], ["g2-m1"], ["g3-m1"])


def test_when_received_without_a_timeout_then_the_group_goes_to_the_end_of_the_line(
    bench: Bench,
) -> None:
    url = bench.make(**CONTENT)
    bench.send_all(url, "g1-m1", "g2-m1", "g2-m2", "g3-m1", "g1-m2")

    first = bench.bodies(url, 3, VisibilityTimeout=0)
    second = bench.bodies(url, VisibilityTimeout=0)

    assert first == ["g1-m1", "g1-m2", "g2-m1"]
    assert second == ["g3-m1", "g1-m1", "g1-m2", "g2-m1", "g2-m2"]


def test_when_a_groups_timeouts_pass_then_it_comes_again_in_order(json_bench: Bench) -> None:
    url = json_bench.make(**CONTENT, VisibilityTimeout="1")
    json_bench.send_all(url, "g1-m1", "g1-m2", "g1-m3", "g1-m4", "g2-m1", "g3-m1")
    json_bench.receive(url, 2)
    json_bench.receive(url, 1)
    pause(1.3)

    bodies = json_bench.bodies(url, VisibilityTimeout=0)

    group = ["g1-m1", "g1-m2", "g1-m3", "g1-m4"]
    assert bodies in (["g3-m1", *group, "g2-m1"], ["g3-m1", "g2-m1", *group])


def test_when_one_messages_visibility_ends_then_only_that_one_comes_again(bench: Bench) -> None:
    url = bench.make(**CONTENT)
    bench.send_all(url, "g1-m1", "g1-m2", "g2-m1")
    first, _ = bench.receive(url, 2)

    bench.hide(url, first, 0)

    assert bench.bodies(url, 3, WaitTimeSeconds=2) == ["g2-m1", "g1-m1"]


def test_when_one_messages_visibility_is_shortened_then_only_that_one_comes_again(
    json_bench: Bench,
) -> None:
    url = json_bench.make(**CONTENT)
    json_bench.send_all(url, "g1-m1", "g1-m2", "g2-m1")
    first, _ = json_bench.receive(url, 2)

    json_bench.hide(url, first, 1)
    pause(1.3)

    assert json_bench.bodies(url, 3) == ["g2-m1", "g1-m1"]


def test_when_all_in_flight_are_deleted_then_the_group_goes_on(bench: Bench) -> None:
    url = bench.make(**CONTENT)
    # The second g1-m2 has the first one's content, so it is not taken.
    bench.send_all(url, "g1-m1", "g2-m1", "g1-m2", "g2-m2", "g1-m2", "g1-m3", "g1-m4", "g3-m1")
    taken = bench.receive(url, 2)

    bench.delete(url, *taken)

    assert [each["Body"] for each in taken] == ["g1-m1", "g1-m2"]
    assert bench.bodies(url) in (
        ["g2-m1", "g2-m2", "g1-m3", "g1-m4", "g3-m1"],
        ["g2-m1", "g2-m2", "g3-m1", "g1-m3", "g1-m4"],
    )


def test_when_only_some_in_flight_are_deleted_then_the_group_still_waits(bench: Bench) -> None:
    url = bench.make(**CONTENT)
    bench.send_all(url, "g1-m1", "g2-m1", "g1-m2", "g2-m2", "g1-m3", "g3-m1")
    first, _ = bench.receive(url, 2)

    bench.delete(url, first)

    assert bench.bodies(url) == ["g2-m1", "g2-m2", "g3-m1"]


def test_when_received_one_by_one_then_the_order_is_that_of_the_sends(bench: Bench) -> None:
    url = bench.make(**FIFO)
    sent = [
        bench.send(url, str(number), MessageGroupId="g", MessageDeduplicationId=str(number))
        for number in range(4)
    ]

    for expected in sent:
        message = bench.receive_one(url)
        bench.delete(url, message)
        assert message["MessageId"] == expected["MessageId"]

    numbers = [int(each["SequenceNumber"]) for each in sent]
    assert numbers == sorted(set(numbers))
    assert all(len(each["SequenceNumber"]) == 20 for each in sent)


def test_when_the_queue_delays_then_the_order_is_kept(json_bench: Bench) -> None:
    url = json_bench.make(**CONTENT, DelaySeconds="1")
    json_bench.send_all(url, "g-1", "g-2", "g-3")

    early = json_bench.receive(url)
    pause(1.3)

    assert early == []
    assert json_bench.bodies(url) == ["g-1", "g-2", "g-3"]


def test_when_an_emptied_group_is_used_again_then_it_is_served(bench: Bench) -> None:
    url = bench.make(**CONTENT)
    bench.send_all(url, "g1-m1")
    bench.delete(url, bench.receive_one(url))

    bench.send_all(url, "g1-m2", "g2-m1")

    assert sorted(bench.bodies(url)) == ["g1-m2", "g2-m1"]


def test_when_messages_are_taken_and_deleted_then_the_count_is_of_the_visible(
    bench: Bench,
) -> None:
    url = bench.make(**CONTENT)
    bench.send_all(url, "g1-m1", "g1-m2", "g1-m3", "g2-m1", "g3-m1")
    before = bench.counts(url)

    taken = bench.receive(url, 4)
    during = bench.counts(url)
    bench.delete(url, *taken)

    assert before == (5, 0, 0)
    assert during == (1, 4, 0)
    assert bench.counts(url) == (1, 0, 0)


def test_when_an_attempt_is_repeated_then_it_gets_the_same_messages(bench: Bench) -> None:
    """AWS answers a receive with the same ReceiveRequestAttemptId for five minutes alike."""
    url = bench.make(**CONTENT)
    bench.send_all(url, "g1-m1", "g1-m2", "g2-m1")

    first = bench.receive(url, ReceiveRequestAttemptId="attempt-1")
    again = bench.receive(url, ReceiveRequestAttemptId="attempt-1")
    other = bench.receive(url, ReceiveRequestAttemptId="attempt-2")

    assert [each["MessageId"] for each in first] == [each["MessageId"] for each in again]
    assert other == []


@pytest.mark.parametrize("name", ["MessageGroupId", "MessageDeduplicationId"])
@pytest.mark.parametrize("value", ["a" * 129, "with space", "ümlaut"])
def test_when_an_id_is_invalid_then_it_is_named(bench: Bench, name: str, value: str) -> None:
    ids = {"MessageGroupId": "g", "MessageDeduplicationId": "d", name: value}

    refusal = bench.refused("send_message", QueueUrl=bench.make(**FIFO), MessageBody="test", **ids)

    assert refusal.code == "InvalidParameterValue"
    assert f"{name} can only include alphanumeric and punctuation characters" in refusal.message


@pytest.mark.parametrize("value", ["a" * 128, "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"])
def test_when_an_id_is_valid_then_it_is_kept(bench: Bench, value: str) -> None:
    url = bench.make(**FIFO)

    bench.send(url, MessageGroupId=value, MessageDeduplicationId=value)

    found = bench.receive_one(url, AttributeNames=["All"])["Attributes"]
    assert (found["MessageGroupId"], found["MessageDeduplicationId"]) == (value, value)


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        (
            {"MessageGroupId": "g"},
            "InvalidParameterValue",
            "The queue should either have ContentBasedDeduplication enabled or "
            "MessageDeduplicationId provided explicitly",
        ),
        (
            {"MessageDeduplicationId": "d"},
            "MissingParameter",
            "The request must contain the parameter MessageGroupId.",
        ),
    ],
)
def test_when_an_id_is_missing_then_it_is_named(
    bench: Bench, given: dict[str, str], code: str, message: str
) -> None:
    refusal = bench.refused(
        "send_message", QueueUrl=bench.make(**FIFO), MessageBody="test", **given
    )

    assert (refusal.code, refusal.message, refusal.status) == (code, message, 400)


def test_when_a_fifo_message_is_sent_without_a_delay_then_zero_is_fine(bench: Bench) -> None:
    url = bench.make(**FIFO)

    bench.send(url, DelaySeconds=0, MessageGroupId="g", MessageDeduplicationId="42")

    assert bench.bodies(url) == ["body"]
