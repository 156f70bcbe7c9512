"""Topics: a queue subscribed to SNS, with its permission, its filter and its form of delivery.

What runs on LocalStack runs through both SDKs (R34).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateways._aws.sdk_transport import Reply, Request
from gateways._aws.settings import TransportKind
from gateways.sqs.topics import TopicSubscription, is_own_statement, permitting
from pump.errors import AccessDenied, ConfigurationError, QueueMismatch

from .clouds import CLOUDS, Cloud, open_cloud
from .paper_aws import ACCOUNT, REGION, PaperAws

QUEUE_ARN = f"arn:aws:sqs:{REGION}:{ACCOUNT}:orders"
TOPIC_ARN = f"arn:aws:sns:{REGION}:{ACCOUNT}:events"
STRANGERS_TOPIC = f"arn:aws:sns:{REGION}:999999999999:events"
THEIRS = {"Sid": "theirs", "Effect": "Allow", "Principal": "*", "Action": "sqs:*"}


@pytest.fixture(params=CLOUDS)
async def cloud(request: pytest.FixtureRequest) -> AsyncIterator[Cloud]:
    async with open_cloud(request) as cloud:
        yield cloud


@pytest.fixture(params=TransportKind)
async def localstack_cloud(request: pytest.FixtureRequest) -> AsyncIterator[Cloud]:
    async with open_cloud(request) as cloud:
        yield cloud


@pytest.fixture
def paper() -> PaperAws:
    return PaperAws()


async def subscription_of(cloud: Cloud, queue: str, topic: str = "events") -> dict[str, str]:
    """What SNS says of the queue's only subscription."""
    arn = await cloud.arn(queue)
    topic_arn = arn.replace(":sqs:", ":sns:").removesuffix(queue) + topic
    found = await cloud.sns("list_subscriptions_by_topic", TopicArn=topic_arn)
    [subscription] = [each for each in found["Subscriptions"] if each["Endpoint"] == arn]
    reply = await cloud.sns(
        "get_subscription_attributes", SubscriptionArn=subscription["SubscriptionArn"]
    )
    return {"SubscriptionArn": subscription["SubscriptionArn"], **reply["Attributes"]}


async def test_when_a_topic_is_named_then_it_is_made_and_the_queue_subscribed(
    cloud: Cloud,
) -> None:
    options = {"topic": "events", "filter_policy": {"type": ["PlaceOrder"]}}

    await cloud.create("orders", **options)

    subscription = await subscription_of(cloud, "orders")
    assert subscription["RawMessageDelivery"] == "true"
    assert json.loads(subscription["FilterPolicy"]) == {"type": ["PlaceOrder"]}
    await cloud.validate("orders", **options)


async def test_when_a_topic_is_named_then_it_may_send_to_the_queue_and_no_other_may(
    cloud: Cloud,
) -> None:
    await cloud.create("orders", topic="events")

    attributes = await cloud.attributes("orders")
    [statement] = json.loads(attributes["Policy"])["Statement"]
    assert is_own_statement(statement)
    assert statement["Resource"] == attributes["QueueArn"]
    [source] = statement["Condition"]["ArnEquals"].values()
    assert source.endswith(":events")


async def test_when_a_fifo_queue_is_subscribed_then_the_topic_is_fifo(cloud: Cloud) -> None:
    """R38."""
    await cloud.create("orders.fifo", topic="events.fifo")

    subscription = await subscription_of(cloud, "orders.fifo", "events.fifo")
    assert subscription["RawMessageDelivery"] == "true"


async def test_when_a_topic_is_given_by_arn_then_it_is_the_same(cloud: Cloud) -> None:
    await cloud.create("orders")
    arn = (await cloud.arn("orders")).replace(":sqs:", ":sns:").replace("orders", "events")

    await cloud.create("orders", topic=arn)

    assert (await subscription_of(cloud, "orders"))["TopicArn"] == arn
    await cloud.validate("orders", topic="events")


async def test_when_subscribed_again_then_nothing_is_changed(cloud: Cloud) -> None:
    options = {"topic": "events", "filter_policy": {"type": ["PlaceOrder"]}}
    await cloud.create("orders", **options)
    before = await subscription_of(cloud, "orders")
    cloud.operations.clear()

    await cloud.create("orders", **options)

    assert await subscription_of(cloud, "orders") == before
    assert not {operation for operation in cloud.operations if not is_a_look(operation)}


def is_a_look(operation: str) -> bool:
    return operation.startswith(("get_", "list_"))


async def test_when_the_subscription_differs_then_only_the_difference_is_changed(
    cloud: Cloud,
) -> None:
    await cloud.create("orders", topic="events", filter_policy={"type": ["PlaceOrder"]})
    before = await subscription_of(cloud, "orders")
    cloud.operations.clear()

    await cloud.create("orders", topic="events", filter_policy={"type": ["CancelOrder"]})

    after = await subscription_of(cloud, "orders")
    assert after["SubscriptionArn"] == before["SubscriptionArn"]
    assert json.loads(after["FilterPolicy"]) == {"type": ["CancelOrder"]}
    assert [each for each in cloud.operations if not is_a_look(each)] == [
        "set_subscription_attributes"
    ]


async def test_when_no_filter_is_asked_for_then_the_one_there_is_stays(cloud: Cloud) -> None:
    await cloud.create("orders", topic="events", filter_policy={"type": ["PlaceOrder"]})

    await cloud.create("orders", topic="events")
    kept = await subscription_of(cloud, "orders")
    await cloud.create("orders", topic="events", filter_policy={})
    removed = await subscription_of(cloud, "orders")

    assert json.loads(kept["FilterPolicy"]) == {"type": ["PlaceOrder"]}
    assert json.loads(removed.get("FilterPolicy", "{}")) == {}


async def test_when_two_queues_take_from_one_topic_then_both_are_subscribed(cloud: Cloud) -> None:
    await asyncio.gather(
        *(cloud.create(queue, topic="events") for queue in ("orders", "invoices", "audit"))
    )

    for queue in ("orders", "invoices", "audit"):
        await cloud.validate(queue, topic="events")


async def test_when_a_queue_takes_from_two_topics_then_both_may_send(cloud: Cloud) -> None:
    await cloud.create("orders", topic="events")

    await cloud.create("orders", topic="news")

    statements = json.loads((await cloud.attributes("orders"))["Policy"])["Statement"]
    assert len({statement["Sid"] for statement in statements}) == 2
    await cloud.validate("orders", topic="events")
    await cloud.validate("orders", topic="news")


@pytest.mark.parametrize(
    ("asked", "difference"),
    [
        ({"topic": "missing"}, "topic missing does not exist"),
        ({"topic": "other"}, "it is not subscribed to topic other"),
        ({"topic": "events", "raw_delivery": False}, "RawMessageDelivery true, asked for false"),
        ({"topic": "events", "filter_policy": {"a": ["b"]}}, 'FilterPolicy {}, asked for {"a"'),
    ],
)
async def test_when_validating_then_what_is_missing_of_the_subscription_is_said_and_not_made(
    cloud: Cloud, asked: dict[str, Any], difference: str
) -> None:
    """R56."""
    await cloud.create("orders", topic="events")
    await cloud.create("another", topic="other")
    cloud.operations.clear()

    with pytest.raises(QueueMismatch) as caught:
        await cloud.validate("orders", **asked)

    assert difference in caught.value.detail
    assert all(map(is_a_look, cloud.operations))


async def test_when_the_topic_is_another_accounts_then_it_is_subscribed_to_and_not_made(
    paper: PaperAws,
) -> None:
    """Its owner may let us subscribe, and not let us list."""
    cloud = Cloud(paper)
    paper.topics.add(STRANGERS_TOPIC)

    def deny(request: Request) -> Reply:
        raise AccessDenied("events", "sns:ListSubscriptionsByTopic")

    paper.answers["list_subscriptions_by_topic"] = deny
    for _ in range(2):
        await cloud.create("orders", topic=STRANGERS_TOPIC)

    assert [each["TopicArn"] for each in paper.subscriptions.values()] == [STRANGERS_TOPIC]
    assert "create_topic" not in cloud.operations
    await cloud.validate("orders", topic=STRANGERS_TOPIC)


async def test_when_listing_our_own_topic_is_denied_then_that_is_the_error(
    paper: PaperAws,
) -> None:
    """R56: the permission to grant is the narrow one."""

    def deny(request: Request) -> Reply:
        raise AccessDenied("events", "sns:ListSubscriptionsByTopic")

    paper.answers["list_subscriptions_by_topic"] = deny

    with pytest.raises(AccessDenied, match="ListSubscriptionsByTopic"):
        await Cloud(paper).create("orders", topic="events")


async def test_when_a_strangers_topic_is_missing_then_that_is_an_error(paper: PaperAws) -> None:
    """R56."""
    with pytest.raises(ConfigurationError, match="no such topic"):
        await Cloud(paper).create("orders", topic=STRANGERS_TOPIC)

    assert paper.topics == set()


async def test_when_the_topic_is_in_another_region_then_that_is_an_error(paper: PaperAws) -> None:
    """R56: a client speaks to the SNS of one region."""
    with pytest.raises(ConfigurationError, match=REGION):
        await Cloud(paper).create("orders", topic=f"arn:aws:sns:us-east-1:{ACCOUNT}:events")

    assert paper.topics == set()


async def test_when_a_subscription_waits_for_confirmation_then_it_is_none(paper: PaperAws) -> None:
    cloud = Cloud(paper)
    await cloud.create("orders", topic="events")
    [subscription] = paper.subscriptions.values()
    paper.subscriptions = {"PendingConfirmation": subscription}

    with pytest.raises(QueueMismatch, match="not subscribed"):
        await cloud.validate("orders", topic="events")


def test_when_there_is_no_policy_then_the_topic_alone_is_permitted() -> None:
    policy = permitting(None, TOPIC_ARN, QUEUE_ARN)

    assert policy is not None
    [statement] = json.loads(policy)["Statement"]
    assert statement == {
        "Sid": statement["Sid"],
        "Effect": "Allow",
        "Principal": {"Service": "sns.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": QUEUE_ARN,
        "Condition": {"ArnEquals": {"aws:SourceArn": TOPIC_ARN}},
    }


@pytest.mark.parametrize("statements", [[THEIRS], THEIRS])
def test_when_there_is_a_policy_then_everything_in_it_stays(statements: object) -> None:
    theirs = {"Version": "2008-10-17", "Id": "mine", "Statement": statements}

    policy = permitting(json.dumps(theirs), TOPIC_ARN, QUEUE_ARN)

    assert policy is not None
    document = json.loads(policy)
    first, ours = document.pop("Statement")
    assert document == {"Version": "2008-10-17", "Id": "mine"}
    assert first == THEIRS
    assert is_own_statement(ours)
    assert permitting(policy, TOPIC_ARN, QUEUE_ARN) is None


def test_when_our_statement_was_changed_then_it_is_put_right() -> None:
    policy = permitting(None, TOPIC_ARN, QUEUE_ARN)
    assert policy is not None

    again = permitting(policy.replace("Allow", "Deny"), TOPIC_ARN, QUEUE_ARN)

    assert again == policy


@pytest.mark.parametrize("topic", ["", "a b", "a.b", "x" * 257, "arn:aws:sns:eu-west-1:1:x", ":"])
def test_when_a_topic_is_malformed_then_that_is_an_error(topic: str) -> None:
    """R56."""
    with pytest.raises(ConfigurationError) as caught:
        TopicSubscription.parse(topic)

    assert caught.value.value == topic


@pytest.mark.parametrize("partition", ["aws", "aws-cn", "aws-us-gov"])
def test_when_a_topic_is_named_then_its_arn_is_beside_the_queues(partition: str) -> None:
    topic = TopicSubscription.parse("events.fifo")

    arn = topic.arn_for(f"arn:{partition}:sqs:{REGION}:{ACCOUNT}:orders.fifo")

    assert arn == f"arn:{partition}:sns:{REGION}:{ACCOUNT}:events.fifo"
    assert TopicSubscription.parse(arn).name == "events.fifo"


@pytest.mark.broker
async def test_when_published_then_what_passes_the_filter_arrives_in_the_form_asked_for(
    localstack_cloud: Cloud,
) -> None:
    cloud = localstack_cloud
    wanted = {"kind": ["order"]}
    await cloud.create("raw", topic="events", filter_policy=wanted)
    await cloud.create("wrapped", topic="events", raw_delivery=False)
    topic = (await subscription_of(cloud, "raw"))["TopicArn"]

    for kind in ("invoice", "order"):
        attribute = {"kind": {"DataType": "String", "StringValue": kind}}
        await cloud.sns("publish", TopicArn=topic, Message=kind, MessageAttributes=attribute)

    assert [json.loads(body)["Message"] for body in await bodies(cloud, "wrapped", 2)] == [
        "invoice",
        "order",
    ]
    assert await bodies(cloud, "raw", 1) == ["order"]


@pytest.mark.broker
async def test_when_the_filter_is_for_bodies_then_messages_of_ours_are_filtered_too(
    localstack_cloud: Cloud,
) -> None:
    cloud = localstack_cloud
    options = {"topic": "events", "filter_policy": {"kind": ["order"]}}
    await cloud.create("orders", **options)
    await cloud.create("orders", **options, filter_scope="body")
    topic = (await subscription_of(cloud, "orders"))["TopicArn"]

    for kind in ("invoice", "order"):
        await cloud.sns("publish", TopicArn=topic, Message=json.dumps({"kind": kind}))

    await cloud.validate("orders", **options, filter_scope="body")
    assert await bodies(cloud, "orders", 1) == ['{"kind": "order"}']
    with pytest.raises(QueueMismatch, match="FilterPolicyScope MessageBody"):
        await cloud.validate("orders", **options, filter_scope="attributes")


async def bodies(cloud: Cloud, queue: str, count: int) -> list[str]:
    """Receive until there are `count`, in the order of their content."""
    received: list[str] = []
    while len(received) < count:
        reply = await cloud.sqs("receive_message", queue, WaitTimeSeconds=5, MaxNumberOfMessages=10)
        assert reply.get("Messages"), f"{queue} has no more than {received}"
        received += [message["Body"] for message in reply["Messages"]]
    return sorted(received, key=lambda body: ("order" in body, body))


@pytest.mark.parametrize(
    "policy", ["{", "null", "[" * 100_000, '{"Statement": "x"}', '{"Statement": ["x"]}']
)
def test_when_a_queues_policy_cannot_be_read_then_it_is_not_replaced(policy: str) -> None:
    with pytest.raises(ConfigurationError, match="access policy"):
        permitting(policy, TOPIC_ARN, QUEUE_ARN)
