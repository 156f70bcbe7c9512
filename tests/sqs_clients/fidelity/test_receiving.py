"""ReceiveMessage: how many, how long, and which attributes come with a message."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from pump.clock import SYSTEM_CLOCK

from .bench import FIFO, Bench

pytestmark = pytest.mark.broker

GENERAL = {"DataType": "String", "StringValue": "Kenobi"}
HELLO = {"DataType": "String", "StringValue": "There"}
HELP = {"DataType": "String", "StringValue": "Me"}
ALL = {"General": GENERAL, "Hello": HELLO, "Help.Me": HELP}
WHOLE = "4c360f3fdafd970e05fae2f149d997f5"


@pytest.mark.parametrize(
    ("names", "expected", "digest"),
    [
        ([], {}, None),
        (["All"], ALL, WHOLE),
        (["*"], ALL, WHOLE),
        ([".*"], ALL, WHOLE),
        (["Foo", "Help"], {}, None),
        (
            ["Hello", "General"],
            {"Hello": HELLO, "General": GENERAL},
            "fca026605781cb4126a1e9044df24232",
        ),
        (["Foo", "Hello"], {"Hello": HELLO}, "a311262e065454b75da111d535b8dacd"),
        (["Hel.*"], {"Hello": HELLO, "Help.Me": HELP}, "83fee93c1bcd8b9a5a923ffacdc636c7"),
        (["AWS."], {}, None),
        (["..foo"], {}, None),
    ],
)
def test_when_attributes_are_chosen_then_the_digest_is_of_the_chosen(
    bench: Bench, names: list[str], expected: dict[str, Any], digest: str | None
) -> None:
    url = bench.make(VisibilityTimeout="0")
    bench.send(url, "msg", MessageAttributes=ALL)

    received = bench.receive_one(url, MessageAttributeNames=names)

    assert received.get("MessageAttributes", {}) == expected
    assert received.get("MD5OfMessageAttributes") == digest


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], set()),
        (
            ["All"],
            {
                "ApproximateFirstReceiveTimestamp",
                "ApproximateReceiveCount",
                "SenderId",
                "SentTimestamp",
            },
        ),
        (["SenderId"], {"SenderId"}),
        (["SenderId", "SequenceNumber"], {"SenderId"}),
    ],
)
def test_when_system_attributes_are_chosen_then_these_come(
    bench: Bench, names: list[str], expected: set[str]
) -> None:
    url = bench.make()
    bench.send(url)

    received = bench.receive_one(url, AttributeNames=names)

    assert received.get("Attributes", {}).keys() == expected


@pytest.mark.parametrize("old", [[], ["SentTimestamp"]])
def test_when_the_newer_name_of_the_list_is_used_then_it_is_heeded(
    json_bench: Bench, old: list[str]
) -> None:
    url = json_bench.make()
    json_bench.send(url)

    received = json_bench.receive_one(
        url, AttributeNames=old, MessageSystemAttributeNames=["SenderId"]
    )

    assert "SenderId" in received["Attributes"]


def test_when_a_fifo_message_is_received_then_it_tells_its_ids(bench: Bench) -> None:
    url = bench.make(**FIFO, VisibilityTimeout="0")
    sent = bench.send(
        url, "message-body-1", MessageGroupId="group-1", MessageDeduplicationId="dedup-1"
    )

    first = bench.receive_one(url, AttributeNames=["All"])["Attributes"]
    second = bench.receive_one(url, AttributeNames=["All"])["Attributes"]

    assert sent["MD5OfMessageBody"] == "19c9e282d65f9733bc6b35d50062c7ee"
    for found in (first, second):
        assert found["MessageGroupId"] == "group-1"
        assert found["MessageDeduplicationId"] == "dedup-1"
        assert found["SequenceNumber"] == sent["SequenceNumber"]
    assert (first["ApproximateReceiveCount"], second["ApproximateReceiveCount"]) == ("1", "2")
    name = "ApproximateFirstReceiveTimestamp"
    assert first[name] == second[name]


def test_when_timestamps_are_given_then_they_are_whole_milliseconds(bench: Bench) -> None:
    url = bench.make()
    bench.send(url)

    found = bench.receive_one(url, AttributeNames=["All"])["Attributes"]

    sent, received = (
        int(found[name]) for name in ("SentTimestamp", "ApproximateFirstReceiveTimestamp")
    )
    assert 0 <= received - sent < 5_000
    assert abs(sent - SYSTEM_CLOCK.time_s() * 1_000) < 30_000


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (
            {"MaxNumberOfMessages": 11},
            "Value 11 for parameter MaxNumberOfMessages is invalid. "
            "Reason: Must be between 1 and 10, if provided.",
        ),
        (
            {"MaxNumberOfMessages": 0},
            "Value 0 for parameter MaxNumberOfMessages is invalid. "
            "Reason: Must be between 1 and 10, if provided.",
        ),
        ({"WaitTimeSeconds": 21}, "Value 21 for parameter WaitTimeSeconds is invalid."),
        ({"WaitTimeSeconds": -1}, "Value -1 for parameter WaitTimeSeconds is invalid."),
        ({"VisibilityTimeout": 43201}, "Value 43201 for parameter VisibilityTimeout is invalid."),
        ({"VisibilityTimeout": -1}, "Value -1 for parameter VisibilityTimeout is invalid."),
    ],
)
def test_when_a_number_is_out_of_its_range_then_it_is_named(
    bench: Bench, request_: dict[str, int], message: str
) -> None:
    refusal = bench.refused("receive_message", QueueUrl=bench.make(), **request_)

    assert refusal.code == "InvalidParameterValue"
    assert refusal.message.startswith(message)


def test_when_no_number_is_given_then_one_message_comes(bench: Bench) -> None:
    url = bench.make()
    bench.send(url, "1")
    bench.send(url, "2")

    [message] = bench.sqs.receive_message(QueueUrl=url)["Messages"]

    assert message["Body"] == "1"


def test_when_messages_are_there_then_a_long_poll_does_not_wait_for_more(bench: Bench) -> None:
    url = bench.make()
    bench.send(url)
    started_s = SYSTEM_CLOCK.now_s()

    received = bench.receive(url, 3, WaitTimeSeconds=5)

    assert len(received) == 1
    assert SYSTEM_CLOCK.now_s() - started_s < 2


@pytest.mark.parametrize(
    ("attributes", "request_"),
    [({}, {"WaitTimeSeconds": 10}), ({"ReceiveMessageWaitTimeSeconds": "10"}, {})],
)
def test_when_a_message_comes_during_the_wait_then_the_poll_ends(
    json_bench: Bench, attributes: dict[str, str], request_: dict[str, int]
) -> None:
    url = json_bench.make(**attributes)
    timer = threading.Timer(0.5, json_bench.send, (url, "late"))
    timer.start()
    started_s = SYSTEM_CLOCK.now_s()

    bodies = json_bench.bodies(url, **request_)

    timer.join()
    assert bodies == ["late"]
    assert 0.4 < SYSTEM_CLOCK.now_s() - started_s < 5


def test_when_nothing_comes_then_the_poll_ends_at_its_time(json_bench: Bench) -> None:
    url = json_bench.make(ReceiveMessageWaitTimeSeconds="20")
    started_s = SYSTEM_CLOCK.now_s()

    assert json_bench.receive(url, WaitTimeSeconds=1) == []
    assert 0.9 < SYSTEM_CLOCK.now_s() - started_s < 3


def test_when_a_standard_queue_is_read_then_its_messages_come_in_about_their_order(
    bench: Bench,
) -> None:
    url = bench.make()
    for number in range(5):
        bench.send(url, str(number))

    assert bench.bodies(url, 3) + bench.bodies(url) == ["0", "1", "2", "3", "4"]


def test_when_messages_move_then_the_counts_follow(bench: Bench) -> None:
    url = bench.make()
    for _ in range(3):
        bench.send(url)
    bench.send(url, DelaySeconds=60)

    taken = bench.receive(url, 2)
    during = bench.counts(url)
    bench.delete(url, taken[0])

    assert during == (1, 2, 1)
    assert bench.counts(url) == (1, 1, 1)
