"""Making, finding, setting, emptying and deleting queues."""

import json

import attrs
import pytest

from .harness import ACCOUNT, BASE_URL, REGION, Service


async def test_when_a_queue_is_made_then_its_url_leads_back_and_its_arn_names_it(
    service: Service,
) -> None:
    """R44."""
    url = await service.queue("orders")

    assert url == f"{BASE_URL}/{ACCOUNT}/orders"
    assert await service.arn(url) == f"arn:aws:sqs:{REGION}:{ACCOUNT}:orders"
    assert await service.call("GetQueueUrl", QueueName="orders") == {"QueueUrl": url}


@pytest.mark.parametrize("name", ["a/b", "a b", "x" * 81, "ünicode", "orders.fifo"])
async def test_when_a_name_is_not_allowed_then_no_queue_is_made(
    service: Service, name: str
) -> None:
    """R44."""
    refused = await service.refusal("CreateQueue", QueueName=name)

    assert refused.query_code == "InvalidParameterValue"
    assert refused.message == (
        "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
    )


@pytest.mark.parametrize("name", ["orders", "x" * 76 + ".fifo", ".fifo"])
async def test_when_a_fifo_queue_has_no_fifo_name_then_it_is_not_made(
    service: Service, name: str
) -> None:
    """R44."""
    refused = await service.refusal("CreateQueue", QueueName=name, Attributes={"FifoQueue": "true"})

    assert refused.query_code == "InvalidParameterValue"
    assert "must end with .fifo suffix" in refused.message


async def test_when_a_queue_is_made_again_then_only_given_attributes_must_be_the_same(
    service: Service,
) -> None:
    """R44."""
    url = await service.queue(DelaySeconds="1", ReceiveMessageWaitTimeSeconds="1")

    assert await service.queue() == url
    assert await service.queue(DelaySeconds="1") == url
    refused = await service.refusal(
        "CreateQueue",
        QueueName="orders",
        Attributes={"ReceiveMessageWaitTimeSeconds": "1", "DelaySeconds": "2"},
    )

    assert (refused.code, refused.query_code) == ("QueueNameExists", "QueueAlreadyExists")
    assert refused.message == (
        "A queue already exists with the same name and a different value for attribute DelaySeconds"
    )


async def test_when_a_queue_was_deleted_then_it_can_be_made_again_at_once(
    service: Service,
) -> None:
    """R44."""
    url = await service.queue()

    assert await service.call("DeleteQueue", QueueUrl=url) == {}
    refused = await service.refusal("GetQueueUrl", QueueName="orders")

    assert refused.code == "QueueDoesNotExist"
    assert await service.queue() == url


async def test_when_strict_then_a_deleted_name_rests_for_a_minute(
    strict_service: Service,
) -> None:
    """R44."""
    url = await strict_service.queue()
    await strict_service.call("DeleteQueue", QueueUrl=url)

    refused = await strict_service.refusal("CreateQueue", QueueName="orders")
    await strict_service.clock.advance(61)

    assert refused.code == "QueueDeletedRecently"
    assert await strict_service.queue() == url


@pytest.mark.parametrize(
    "url",
    [
        f"{BASE_URL}/{ACCOUNT}/orders",
        f"https://sqs.eu-west-1.amazonaws.com/{ACCOUNT}/orders",
        f"/{ACCOUNT}/orders",
        "orders",
    ],
)
async def test_when_a_queue_is_named_by_any_host_a_path_or_its_name_then_it_is_found(
    service: Service, url: str
) -> None:
    """R44."""
    await service.queue("orders")

    assert (await service.send(url))["MessageId"]


@pytest.mark.parametrize("url", [f"{BASE_URL}/{ACCOUNT}/other", f"{BASE_URL}/999999999999/orders"])
async def test_when_there_is_no_such_queue_in_that_account_then_the_call_is_refused(
    service: Service, url: str
) -> None:
    """R44."""
    await service.queue("orders")

    refused = await service.refusal("GetQueueAttributes", QueueUrl=url)

    assert refused.code == "QueueDoesNotExist"
    assert refused.query_code == "AWS.SimpleQueueService.NonExistentQueue"


async def test_when_only_another_region_has_the_queue_then_a_client_reaches_it_all_the_same(
    service: Service,
) -> None:
    """R44."""
    url = await service.queue("orders")
    elsewhere = attrs.evolve(service, region="us-west-2")

    assert (await elsewhere.arn(url)).split(":")[3] == REGION
    assert await elsewhere.call("GetQueueUrl", QueueName="orders") == {"QueueUrl": url}
    assert await elsewhere.call("ListQueues") == {}


async def test_when_two_regions_have_the_name_then_each_client_sees_its_own(
    service: Service,
) -> None:
    """R44."""
    elsewhere = attrs.evolve(service, region="us-west-2")
    url = await service.queue("orders")
    await elsewhere.queue("orders")

    await service.send(url, "here")

    assert await elsewhere.receive(url) == []
    assert [message["Body"] for message in await service.receive(url)] == ["here"]


async def test_when_another_account_s_queue_is_asked_for_then_its_owner_is_named(
    service: Service,
) -> None:
    """R44."""
    other = attrs.evolve(service, account="999999999999")
    url = await service.queue("orders")

    assert (await other.refusal("GetQueueUrl", QueueName="orders")).code == "QueueDoesNotExist"
    found = await other.call("GetQueueUrl", QueueName="orders", QueueOwnerAWSAccountId=ACCOUNT)
    assert found == {"QueueUrl": url}


async def test_when_queues_are_listed_then_prefix_and_pages_choose(service: Service) -> None:
    """R44."""
    urls = [await service.queue(name) for name in ("a-1", "a-2", "a-3", "b-1")]

    assert await service.call("ListQueues", QueueNamePrefix="none") == {}
    assert await service.call("ListQueues") == {"QueueUrls": urls}
    first = await service.call("ListQueues", QueueNamePrefix="a-", MaxResults=2)
    rest = await service.call(
        "ListQueues", QueueNamePrefix="a-", MaxResults=2, NextToken=first["NextToken"]
    )

    assert first["QueueUrls"] == urls[:2]
    assert rest == {"QueueUrls": urls[2:3]}


_MAX_RESULTS = (
    "Value for parameter MaxResults is invalid. "
    "Reason: MaxResults must be an integer between 1 and 1000."
)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"MaxResults": 0}, _MAX_RESULTS),
        ({"MaxResults": 1001}, _MAX_RESULTS),
        ({"NextToken": "?"}, "Invalid or expired next token."),
    ],
)
async def test_when_a_page_cannot_be_then_the_list_is_refused(
    service: Service, parameters: dict[str, object], message: str
) -> None:
    """R44."""
    refused = await service.refusal("ListQueues", **parameters)

    assert (refused.query_code, refused.message) == ("InvalidParameterValue", message)


async def test_when_attributes_are_set_then_they_and_the_time_change(service: Service) -> None:
    """R44."""
    url = await service.queue()
    before = await service.attributes(url)

    await service.clock.advance(10)
    await service.call("SetQueueAttributes", QueueUrl=url, Attributes={"VisibilityTimeout": "69"})
    after = await service.attributes(url)

    changed = {name for name in after if before[name] != after[name]}
    assert changed == {"VisibilityTimeout", "LastModifiedTimestamp"}
    assert int(after["LastModifiedTimestamp"]) == int(after["CreatedTimestamp"]) + 10


async def test_when_no_attribute_names_are_given_then_none_are_shown(service: Service) -> None:
    """R44."""
    url = await service.queue()

    assert await service.call("GetQueueAttributes", QueueUrl=url) == {}
    assert await service.call("GetQueueAttributes", QueueUrl=url, AttributeNames=[]) == {}


@pytest.mark.parametrize(
    ("is_json", "names", "name"),
    [(True, ["nope"], "nope"), (True, [""], ""), (False, ["nope"], "nope"), (False, [], "")],
)
async def test_when_an_attribute_name_is_unknown_then_it_is_named(
    service: Service, is_json: bool, names: list[str], name: str
) -> None:
    """R44. The query protocol writes an empty list as one empty name."""
    url = await service.queue()

    asking = attrs.evolve(service, is_json=is_json)
    refused = await asking.refusal("GetQueueAttributes", QueueUrl=url, AttributeNames=names)

    assert (refused.code, refused.message) == ("InvalidAttributeName", f"Unknown Attribute {name}.")


async def test_when_no_attribute_is_given_to_set_then_that_is_said(service: Service) -> None:
    """R44."""
    url = await service.queue()

    refused = await service.refusal("SetQueueAttributes", QueueUrl=url, Attributes={})

    assert refused.query_code == "MissingParameter"


async def test_when_messages_are_visible_in_flight_or_delayed_then_each_is_counted(
    service: Service,
) -> None:
    """R44."""
    url = await service.queue()
    for delay_s in (0, 0, 0, 60):
        await service.send(url, DelaySeconds=delay_s)
    await service.receive(url)

    shown = await service.attributes(url)

    assert {name: shown[name] for name in shown if name.startswith("Approximate")} == {
        "ApproximateNumberOfMessages": "2",
        "ApproximateNumberOfMessagesNotVisible": "1",
        "ApproximateNumberOfMessagesDelayed": "1",
    }


async def test_when_the_dead_letter_queue_does_not_exist_then_the_policy_is_refused(
    service: Service,
) -> None:
    """R44."""
    raw = json.dumps(
        {
            "deadLetterTargetArn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:none",
            "maxReceiveCount": 1,
        }
    )

    refused = await service.refusal(
        "CreateQueue", QueueName="orders", Attributes={"RedrivePolicy": raw}
    )

    assert refused.query_code == "InvalidParameterValue"
    assert refused.message.endswith("Reason: Dead letter target does not exist.")


@pytest.mark.parametrize(
    ("permission", "is_allowed"), [("allowAll", True), ("denyAll", False), ("byQueue", False)]
)
async def test_when_a_dead_letter_queue_restricts_its_sources_then_others_are_refused(
    service: Service, permission: str, is_allowed: bool
) -> None:
    """R44."""
    source = await service.queue("source")
    allow = {"redrivePermission": permission}
    if permission == "byQueue":
        allow["sourceQueueArns"] = [f"arn:aws:sqs:{REGION}:{ACCOUNT}:another"]  # type: ignore[assignment]
    dead = await service.queue("dead", RedriveAllowPolicy=json.dumps(allow))
    policy = {"deadLetterTargetArn": await service.arn(dead), "maxReceiveCount": 1}
    attributes = {"RedrivePolicy": json.dumps(policy)}

    if is_allowed:
        await service.call("SetQueueAttributes", QueueUrl=source, Attributes=attributes)
    else:
        refused = await service.refusal(
            "SetQueueAttributes", QueueUrl=source, Attributes=attributes
        )
        assert refused.query_code == "InvalidParameterValue"


async def test_when_queues_name_a_dead_letter_queue_then_it_knows_its_sources(
    service: Service,
) -> None:
    """R44."""
    dead = await service.queue("dead")
    policy = json.dumps({"deadLetterTargetArn": await service.arn(dead), "maxReceiveCount": 1})
    sources = [await service.queue(name, RedrivePolicy=policy) for name in ("a", "b")]

    first = await service.call("ListDeadLetterSourceQueues", QueueUrl=dead, MaxResults=1)
    rest = await service.call(
        "ListDeadLetterSourceQueues", QueueUrl=dead, NextToken=first["NextToken"]
    )

    assert first["queueUrls"] + rest["queueUrls"] == sources
    assert "NextToken" not in rest
    assert await service.call("ListDeadLetterSourceQueues", QueueUrl=sources[0]) == {
        "queueUrls": []
    }


async def test_when_a_queue_is_purged_then_every_message_is_gone(service: Service) -> None:
    """R44."""
    url = await service.queue()
    for delay_s in (0, 0, 60):
        await service.send(url, DelaySeconds=delay_s)
    await service.receive(url)

    assert await service.call("PurgeQueue", QueueUrl=url) == {}
    assert await service.call("PurgeQueue", QueueUrl=url) == {}
    await service.clock.advance(120)

    assert await service.receive(url, MaxNumberOfMessages=10) == []


async def test_when_strict_then_purges_are_a_minute_apart(strict_service: Service) -> None:
    """R44."""
    url = await strict_service.queue()
    await strict_service.call("PurgeQueue", QueueUrl=url)

    refused = await strict_service.refusal("PurgeQueue", QueueUrl=url)
    await strict_service.clock.advance(60)

    assert refused.status == 403
    assert refused.message == (
        "Only one PurgeQueue operation on orders is allowed every 60 seconds."
    )
    assert await strict_service.call("PurgeQueue", QueueUrl=url) == {}


async def test_when_a_parameter_is_missing_then_it_is_named(service: Service) -> None:
    """R44."""
    refused = await service.refusal("SendMessage")

    assert refused.query_code == "MissingParameter"
    assert refused.message == "The request must contain the parameter QueueUrl."


_NO_NAME = "Value for parameter QueueName is invalid. Reason: Must specify a queue name."


@pytest.mark.parametrize(
    ("operation", "parameters", "message"),
    [
        ("CreateQueue", {}, _NO_NAME),
        ("CreateQueue", {"QueueName": ""}, "Queue name cannot be empty"),
        ("GetQueueUrl", {}, _NO_NAME),
        ("GetQueueUrl", {"QueueName": ""}, _NO_NAME),
    ],
)
async def test_when_a_queue_has_no_name_then_that_is_said(
    service: Service, operation: str, parameters: dict[str, str], message: str
) -> None:
    refused = await service.refusal(operation, **parameters)

    assert (refused.query_code, refused.message) == ("InvalidParameterValue", message)


async def test_when_an_operation_is_unknown_then_it_is_refused_by_name(service: Service) -> None:
    """R44."""
    refused = await service.refusal("FooBar")

    assert refused.query_code == "InvalidAction"
    assert refused.query_message == "The action FooBar is not valid for this endpoint."
