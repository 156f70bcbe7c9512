"""The query protocol as it is on the wire: forms and URLs in, XML out."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tests.brokers.aws_account import AwsAccount

from .bench import Bench
from .wire import Wire, path_of

pytestmark = pytest.mark.broker

NAMESPACE = "{http://queue.amazonaws.com/doc/2012-11-05/}"


@pytest.fixture
def wire(bench_account: AwsAccount) -> Wire:
    return Wire(bench_account)


@pytest.fixture
def url(query_bench: Bench) -> str:
    return query_bench.make()


@pytest.fixture
def path(url: str) -> str:
    return path_of(url)


def test_when_a_call_succeeds_then_the_answer_is_xml_of_its_namespace(wire: Wire, url: str) -> None:
    name = url.rpartition("/")[2]

    answer = wire.post("/", Action="GetQueueUrl", QueueName=name, Version="2012-11-05")

    root = ElementTree.fromstring(answer.text)
    assert (answer.status, answer.headers["content-type"].partition(";")[0]) == (200, "text/xml")
    assert root.tag == f"{NAMESPACE}GetQueueUrlResponse"
    assert root.findtext(f"{NAMESPACE}GetQueueUrlResult/{NAMESPACE}QueueUrl") == url
    request_id = root.findtext(f"{NAMESPACE}ResponseMetadata/{NAMESPACE}RequestId")
    assert request_id
    assert answer.headers["x-amzn-requestid"] == request_id


@pytest.mark.parametrize("names", [{"AttributeName.1": "All"}, {"AttributeName.1": "QueueArn"}])
def test_when_a_queues_url_is_asked_for_attributes_then_they_are_pairs(
    wire: Wire, path: str, names: dict[str, str]
) -> None:
    answer = wire.get(path, Action="GetQueueAttributes", **names)

    is_all = names["AttributeName.1"] == "All"
    assert answer.status == 200
    assert "<GetQueueAttributesResponse" in answer.text
    assert "<Attribute><Name>QueueArn</Name><Value>arn:aws:sqs:" in answer.text
    assert ("<Attribute><Name>VisibilityTimeout</Name><Value>30" in answer.text) == is_all


def test_when_a_message_is_sent_by_url_then_it_can_be_received_by_url(
    wire: Wire, path: str, query_bench: Bench
) -> None:
    other = path_of(query_bench.make())

    sent = wire.get(path, Action="SendMessage", MessageBody="foo & bar")
    nothing = wire.get(other, Action="ReceiveMessage")
    received = wire.get(path, Action="ReceiveMessage")

    assert sent.status == 200
    assert "<ReceiveMessageResult/>" in nothing.text.replace(" />", "/>").replace(
        "<ReceiveMessageResult></ReceiveMessageResult>", "<ReceiveMessageResult/>"
    )
    assert "<Body>foo &amp; bar</Body>" in received.text
    assert "<MD5OfBody>" in received.text


def test_when_a_body_has_a_carriage_return_then_xml_does_not_lose_it(wire: Wire, path: str) -> None:
    wire.post(path, Action="SendMessage", MessageBody='"\r&quot;\r\n')

    answer = wire.get(path, Action="ReceiveMessage")

    # As it stands, an XML reader makes a line feed of it.
    assert "\r" not in answer.text
    body = ElementTree.fromstring(answer.text).find(f".//{NAMESPACE}Body")
    assert body is not None
    assert body.text == '"\r&quot;\r\n'


@pytest.mark.parametrize(
    ("parameters", "code", "message"),
    [
        (
            {"Action": "FooBar", "Version": "2012-11-05"},
            "InvalidAction",
            "The action FooBar is not valid for this endpoint.",
        ),
        (
            {"Action": "SendMessage"},
            "MissingParameter",
            "The request must contain the parameter MessageBody.",
        ),
        (
            {"Action": "GetQueueAttributes", "AttributeName.1": "Foobar"},
            "InvalidAttributeName",
            "Unknown Attribute Foobar.",
        ),
        (
            {"Action": "CreateQueue", "QueueName": "other"},
            "InvalidAction",
            "The action CreateQueue is not valid for this endpoint.",
        ),
        (
            {"Action": "ListQueues"},
            "InvalidAction",
            "The action ListQueues is not valid for this endpoint.",
        ),
    ],
)
def test_when_a_call_is_refused_then_the_error_is_xml_too(
    wire: Wire, path: str, parameters: dict[str, str], code: str, message: str
) -> None:
    answer = wire.get(path, **parameters)

    error = ElementTree.fromstring(answer.text).find(f"{NAMESPACE}Error")
    assert answer.status == 400
    assert error is not None
    assert error.findtext(f"{NAMESPACE}Type") == "Sender"
    assert error.findtext(f"{NAMESPACE}Code") == code
    assert error.findtext(f"{NAMESPACE}Message") == message


def test_when_the_queue_is_gone_then_its_url_says_so(
    wire: Wire, url: str, query_bench: Bench
) -> None:
    query_bench.sqs.delete_queue(QueueUrl=url)

    answer = wire.get(path_of(url), **{"Action": "GetQueueAttributes", "AttributeName.1": "All"})

    assert answer.status == 400
    assert "<Code>AWS.SimpleQueueService.NonExistentQueue</Code>" in answer.text
    assert "<Message>The specified queue does not exist for this wsdl version" in answer.text


@pytest.mark.parametrize("accept", ["*/*", "application/json"])
def test_when_no_action_is_named_then_the_operation_is_unknown(
    wire: Wire, path: str, accept: str
) -> None:
    answer = wire.get(path, accept)

    assert answer.status == 404
    assert "<UnknownOperationException" in answer.text


def test_when_a_queue_is_deleted_by_url_then_it_is_gone(wire: Wire, path: str) -> None:
    deleted = wire.get(path, Action="DeleteQueue")
    again = wire.get(path, Action="DeleteQueue")

    assert (deleted.status, again.status) == (200, 400)
    assert "<DeleteQueueResponse" in deleted.text


def test_when_another_queue_is_named_then_the_parameter_counts(
    wire: Wire, url: str, query_bench: Bench
) -> None:
    other = query_bench.make()
    parameters = {"Action": "GetQueueAttributes", "AttributeName.1": "QueueArn", "QueueUrl": other}

    answer = wire.get(path_of(url), **parameters)

    assert query_bench.arn(other) in answer.text
    assert query_bench.arn(url) not in answer.text


def test_when_a_queues_url_is_asked_for_another_then_it_knows_it(
    wire: Wire, path: str, query_bench: Bench
) -> None:
    other = query_bench.make()

    answer = wire.get(path, Action="GetQueueUrl", QueueName=other.rpartition("/")[2])

    assert f"<QueueUrl>{other}</QueueUrl>" in answer.text


def test_when_queues_are_listed_by_url_then_the_root_is_asked(wire: Wire, url: str) -> None:
    answer = wire.get("/", Action="ListQueues", Version="2012-11-05")

    assert answer.status == 200
    assert f"<QueueUrl>{url}</QueueUrl>" in answer.text


def test_when_json_is_accepted_then_the_query_is_answered_in_json(wire: Wire, path: str) -> None:
    parameters = {"Action": "GetQueueAttributes", "AttributeName.1": "All"}

    answer = wire.get(path, "application/json", **parameters)

    result = answer.json()["GetQueueAttributesResponse"]["GetQueueAttributesResult"]
    found = {each["Name"]: each["Value"] for each in result["Attributes"]}
    assert found["QueueArn"].endswith(path.rpartition("/")[2])


def test_when_json_is_accepted_then_an_error_is_in_json(wire: Wire, path: str) -> None:
    answer = wire.get(path, "application/json", Action="ListQueues")

    error = answer.json()["Error"]
    assert answer.status == 400
    assert error["Code"] == "InvalidAction"
    assert error["Message"] == "The action ListQueues is not valid for this endpoint."


def test_when_lists_are_sent_in_a_form_then_their_members_are_numbered(
    wire: Wire, path: str
) -> None:
    sent = wire.post(
        path,
        **{
            "Action": "SendMessageBatch",
            "SendMessageBatchRequestEntry.1.Id": "one",
            "SendMessageBatchRequestEntry.1.MessageBody": "body one",
            "SendMessageBatchRequestEntry.1.MessageAttribute.1.Name": "a",
            "SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.DataType": "String",
            "SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.StringValue": "b",
            "SendMessageBatchRequestEntry.2.Id": "two",
            "SendMessageBatchRequestEntry.2.MessageBody": "body two",
        },
    )
    received = wire.get(
        path,
        **{
            "Action": "ReceiveMessage",
            "MaxNumberOfMessages": "10",
            "AttributeName.1": "SenderId",
            "MessageAttributeName.1": "a",
        },
    )

    assert "<SendMessageBatchResultEntry><Id>one</Id>" in sent.text
    root = ElementTree.fromstring(received.text)
    bodies = [each.text for each in root.iter(f"{NAMESPACE}Body")]
    names = [each.findtext(f"{NAMESPACE}Name") for each in root.iter(f"{NAMESPACE}Attribute")]
    own = [each.findtext(f"{NAMESPACE}Name") for each in root.iter(f"{NAMESPACE}MessageAttribute")]
    assert sorted(body or "" for body in bodies) == ["body one", "body two"]
    assert names == ["SenderId", "SenderId"]
    assert own == ["a"]
