"""Names, attributes and repetition of CreateQueue, as AWS answers them."""

from __future__ import annotations

import pytest

from .bench import CONTENT, FIFO, Bench

pytestmark = pytest.mark.broker

DEFAULTS = {
    "ApproximateNumberOfMessages": "0",
    "ApproximateNumberOfMessagesDelayed": "0",
    "ApproximateNumberOfMessagesNotVisible": "0",
    "DelaySeconds": "0",
    # 1 MiB since August 2025; LocalStack 4.13 agrees.
    "MaximumMessageSize": "1048576",
    "MessageRetentionPeriod": "345600",
    "ReceiveMessageWaitTimeSeconds": "0",
    "SqsManagedSseEnabled": "true",
    "VisibilityTimeout": "30",
}
FIFO_DEFAULTS = {
    **DEFAULTS,
    "ContentBasedDeduplication": "false",
    "DeduplicationScope": "queue",
    "FifoQueue": "true",
    "FifoThroughputLimit": "perQueue",
}
CHANGING = {"CreatedTimestamp", "LastModifiedTimestamp", "QueueArn"}


@pytest.mark.parametrize(("given", "expected"), [({}, DEFAULTS), (FIFO, FIFO_DEFAULTS)])
def test_when_a_queue_is_made_then_its_attributes_are_the_defaults(
    bench: Bench, given: dict[str, str], expected: dict[str, str]
) -> None:
    url = bench.make(**given)

    found = bench.attributes(url)

    assert {name: found[name] for name in found.keys() - CHANGING} == expected
    assert found.keys() >= CHANGING
    assert found["QueueArn"] == bench.arn(url)
    assert found["CreatedTimestamp"].isdigit()
    assert found["CreatedTimestamp"] == found["LastModifiedTimestamp"]


@pytest.mark.parametrize("length", [1, 80])
def test_when_a_name_is_as_short_or_as_long_as_can_be_then_it_is_taken(
    bench: Bench, length: int
) -> None:
    name = (bench.name("_A-z0" * 20))[:length] if length > 1 else "x"

    url = bench.make(name)

    assert url.endswith(f"/{bench.account_id}/{name}")


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("a" * 81, {}),
        ("with space", {}),
        ("with/slash", {}),
        ("with.dot", {}),
        ("ümlaut", {}),
        ("standard.fifo", {}),
        ("no-suffix", FIFO),
        ("a" * 76 + ".fifo", FIFO),
        (".fifo", FIFO),
    ],
)
def test_when_a_name_is_invalid_then_no_queue_is_made(
    bench: Bench, name: str, attributes: dict[str, str]
) -> None:
    refusal = bench.refused("create_queue", QueueName=name, Attributes=attributes)

    assert (refusal.code, refusal.status) == ("InvalidParameterValue", 400)


@pytest.mark.parametrize("again", [{}, {"DelaySeconds": "1"}, {"VisibilityTimeout": "69"}])
def test_when_it_is_made_again_with_what_it_has_then_it_is_the_same_queue(
    bench: Bench, again: dict[str, str]
) -> None:
    name = bench.name()
    url = bench.make(name, DelaySeconds="1", VisibilityTimeout="69")
    bench.send(url)

    assert bench.make(name, **again) == url


@pytest.mark.parametrize("given", [FIFO, CONTENT])
def test_when_a_fifo_queue_is_made_again_then_it_is_the_same_queue(
    bench: Bench, given: dict[str, str]
) -> None:
    url = bench.make(**given)

    assert bench.make(url.rpartition("/")[2], **given) == url


@pytest.mark.parametrize(
    ("first", "then", "attribute"),
    [
        ({"DelaySeconds": "1"}, {"DelaySeconds": "2"}, "DelaySeconds"),
        ({}, {"VisibilityTimeout": "31"}, "VisibilityTimeout"),
        (CONTENT, {**FIFO, "ContentBasedDeduplication": "false"}, "ContentBasedDeduplication"),
    ],
)
def test_when_it_is_made_again_differently_then_it_already_exists(
    bench: Bench, first: dict[str, str], then: dict[str, str], attribute: str
) -> None:
    url = bench.make(**first)

    refusal = bench.refused(
        "create_queue", QueueName=url.rpartition("/")[2], Attributes={**first, **then}
    )

    assert refusal.code == "QueueAlreadyExists"
    assert refusal.message == (
        "A queue already exists with the same name and a different value for attribute " + attribute
    )


def test_when_attributes_were_changed_since_then_the_new_ones_count(bench: Bench) -> None:
    name = bench.name()
    url = bench.make(name, VisibilityTimeout="1")
    bench.set(url, VisibilityTimeout="2")

    refusal = bench.refused("create_queue", QueueName=name, Attributes={"VisibilityTimeout": "1"})

    assert refusal.code == "QueueAlreadyExists"
    assert bench.make(name, VisibilityTimeout="2") == url
    assert bench.make(name) == url


@pytest.mark.parametrize("value", ["true", "false"])
def test_when_a_standard_queue_is_given_the_fifo_attribute_then_it_is_refused(
    bench: Bench, value: str
) -> None:
    refusal = bench.refused("create_queue", QueueName=bench.name(), Attributes={"FifoQueue": value})

    # A name without the suffix is what is wrong with "true", the attribute itself with "false".
    expected = {"true": "InvalidParameterValue", "false": "InvalidAttributeName"}
    assert refusal.code == expected[value]


def test_when_an_attribute_is_unknown_then_it_is_named(bench: Bench) -> None:
    refusal = bench.refused("create_queue", QueueName=bench.name(), Attributes={"Foo": "1"})

    assert (refusal.code, refusal.message) == ("InvalidAttributeName", "Unknown Attribute Foo.")


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("DelaySeconds", "901"),
        ("DelaySeconds", "-1"),
        ("DelaySeconds", "soon"),
        ("MaximumMessageSize", "1023"),
        ("MaximumMessageSize", "1048577"),
        ("MessageRetentionPeriod", "59"),
        ("MessageRetentionPeriod", "1209601"),
        ("ReceiveMessageWaitTimeSeconds", "21"),
        ("ReceiveMessageWaitTimeSeconds", "-1"),
        ("VisibilityTimeout", "43201"),
        ("VisibilityTimeout", "-1"),
        ("VisibilityTimeout", "1.5"),
        ("KmsDataKeyReusePeriodSeconds", "59"),
        ("SqsManagedSseEnabled", "perhaps"),
    ],
)
def test_when_an_attribute_is_out_of_its_range_then_it_is_named(
    bench: Bench, attribute: str, value: str
) -> None:
    refusal = bench.refused("create_queue", QueueName=bench.name(), Attributes={attribute: value})

    assert (refusal.code, refusal.status) == ("InvalidAttributeValue", 400)
    assert attribute in refusal.message


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("DelaySeconds", "900"),
        ("MaximumMessageSize", "1024"),
        ("MaximumMessageSize", "1048576"),
        ("MessageRetentionPeriod", "60"),
        ("MessageRetentionPeriod", "1209600"),
        ("ReceiveMessageWaitTimeSeconds", "20"),
        ("VisibilityTimeout", "0"),
        ("VisibilityTimeout", "43200"),
    ],
)
def test_when_an_attribute_is_at_the_end_of_its_range_then_it_is_taken(
    bench: Bench, attribute: str, value: str
) -> None:
    url = bench.make(**{attribute: value})

    assert bench.attributes(url, attribute) == {attribute: value}


@pytest.mark.parametrize(
    ("attribute", "value"),
    [("DeduplicationScope", "everything"), ("FifoThroughputLimit", "none")],
)
def test_when_a_fifo_attribute_is_none_of_its_words_then_it_is_refused(
    bench: Bench, attribute: str, value: str
) -> None:
    refusal = bench.refused(
        "create_queue", QueueName=bench.name(".fifo"), Attributes={**FIFO, attribute: value}
    )

    assert refusal.code == "InvalidAttributeValue"


@pytest.mark.parametrize("is_fifo", [False, True])
def test_when_it_was_deleted_then_it_can_be_made_again_unless_the_server_is_strict(
    bench: Bench, is_fifo: bool
) -> None:
    """AWS makes one wait for 60 s; a test suite makes the same queue again and again."""
    attributes = FIFO if is_fifo else {}
    name = bench.name(".fifo" if is_fifo else "")
    url = bench.make(name, **attributes)
    bench.send(url, **({"MessageGroupId": "g", "MessageDeduplicationId": "d"} if is_fifo else {}))

    bench.sqs.delete_queue(QueueUrl=url)

    assert bench.make(name, **attributes) == url
    assert bench.counts(url) == (0, 0, 0)
