"""Move tasks: dead letters on their way back."""

import base64
import json
from uuid import UUID, uuid4

import pytest

from .harness import ACCOUNT, REGION, Service


async def _dead_letters(service: Service, *bodies: str) -> tuple[str, str]:
    """A source and its dead-letter queue with messages in it; their URLs."""
    dead = await service.queue("dead")
    policy = {"deadLetterTargetArn": await service.arn(dead), "maxReceiveCount": 1}
    source = await service.queue("source", RedrivePolicy=json.dumps(policy))
    for body in bodies:
        await service.send(source, body)
    for _ in range(2):
        await service.receive(source, MaxNumberOfMessages=10, VisibilityTimeout=0)
    return source, dead


async def _bodies(service: Service, url: str) -> list[str]:
    received = await service.receive(url, MaxNumberOfMessages=10, VisibilityTimeout=0)
    return sorted(message["Body"] for message in received)


async def test_when_a_task_is_started_then_the_messages_move_and_it_is_listed_as_completed(
    service: Service,
) -> None:
    """R44."""
    _, dead = await _dead_letters(service, "a", "b")
    target = await service.queue("target")
    dead_arn, target_arn = await service.arn(dead), await service.arn(target)
    assert await _bodies(service, dead) == ["a", "b"]

    started = await service.call(
        "StartMessageMoveTask", SourceArn=dead_arn, DestinationArn=target_arn
    )
    await service.clock.advance(5)
    [task] = (await service.call("ListMessageMoveTasks", SourceArn=dead_arn))["Results"]

    handle = json.loads(base64.b64decode(started["TaskHandle"]))
    assert str(UUID(handle["taskId"])) == handle["taskId"]
    assert handle["sourceArn"] == dead_arn
    assert isinstance(task.pop("StartedTimestamp"), int)
    assert task == {
        "Status": "COMPLETED",
        "SourceArn": dead_arn,
        "DestinationArn": target_arn,
        "ApproximateNumberOfMessagesMoved": 2,
        "ApproximateNumberOfMessagesToMove": 2,
    }
    assert await _bodies(service, target) == ["a", "b"]
    assert await _bodies(service, dead) == []


async def test_when_no_destination_is_given_then_messages_go_back_to_where_they_came_from(
    service: Service,
) -> None:
    """R44."""
    source, dead = await _dead_letters(service, "a")
    arn = await service.arn(dead)

    await service.call("StartMessageMoveTask", SourceArn=arn)
    await service.clock.advance(5)

    [task] = (await service.call("ListMessageMoveTasks", SourceArn=arn))["Results"]
    assert task["Status"] == "COMPLETED"
    assert "DestinationArn" not in task
    assert await _bodies(service, source) == ["a"]


async def test_when_a_task_runs_then_it_shows_its_handle_and_no_second_one_may_start(
    service: Service,
) -> None:
    """R44."""
    _, dead = await _dead_letters(service, *"abcdefghij")
    arn = await service.arn(dead)

    started = await service.call(
        "StartMessageMoveTask", SourceArn=arn, MaxNumberOfMessagesPerSecond=1
    )
    [running] = (await service.call("ListMessageMoveTasks", SourceArn=arn))["Results"]
    refused = await service.refusal("StartMessageMoveTask", SourceArn=arn)
    cancelled = await service.call("CancelMessageMoveTask", TaskHandle=started["TaskHandle"])
    await service.clock.advance(5)
    [after] = (await service.call("ListMessageMoveTasks", SourceArn=arn))["Results"]

    assert running["Status"] == "RUNNING"
    assert running["TaskHandle"] == started["TaskHandle"]
    assert running["MaxNumberOfMessagesPerSecond"] == 1
    assert refused.message == (
        "There is already a task running. Only one active task is allowed for a source queue arn "
        "at a given time."
    )
    assert set(cancelled) == {"ApproximateNumberOfMessagesMoved"}
    assert after["Status"] == "CANCELLED"
    assert "TaskHandle" not in after
    assert await service.call("StartMessageMoveTask", SourceArn=arn)


async def test_when_the_source_is_no_dead_letter_queue_then_the_task_is_refused(
    service: Service,
) -> None:
    """R44."""
    source, dead = await _dead_letters(service)

    refused = await service.refusal(
        "StartMessageMoveTask",
        SourceArn=await service.arn(source),
        DestinationArn=await service.arn(dead),
    )

    assert refused.query_code == "InvalidParameterValue"
    assert refused.message == "Source queue must be configured as a Dead Letter Queue."


@pytest.mark.parametrize("name", ["SourceArn", "DestinationArn"])
async def test_when_a_queue_of_the_task_does_not_exist_then_the_parameter_is_named(
    service: Service, name: str
) -> None:
    """R44."""
    _, dead = await _dead_letters(service)
    arns = {"SourceArn": await service.arn(dead), name: f"arn:aws:sqs:{REGION}:{ACCOUNT}:none"}

    refused = await service.refusal("StartMessageMoveTask", **arns)

    assert (refused.code, refused.status) == ("ResourceNotFoundException", 404)
    assert refused.message == (
        f"The resource that you specified for the {name} parameter doesn't exist."
    )


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        ("StartMessageMoveTask", "SourceArn"),
        ("StartMessageMoveTask", "DestinationArn"),
        ("ListMessageMoveTasks", "SourceArn"),
    ],
)
@pytest.mark.parametrize("arn", ["dead", "arn:aws:sns:eu-west-1:111122223333:dead"])
async def test_when_an_arn_is_none_of_a_queue_then_its_format_is_told(
    service: Service, operation: str, name: str, arn: str
) -> None:
    _, dead = await _dead_letters(service)

    refused = await service.refusal(operation, **{"SourceArn": await service.arn(dead), name: arn})

    assert refused.query_code == "InvalidParameterValue"
    assert refused.message == (
        f"You must use this format to specify the {name}: "
        "arn:<partition>:<service>:<region>:<account-id>:<resource-id>"
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dead", "Source queue arn and destination queue arn cannot be the same."),
        ("a.fifo", "The source queue and destination queue must be of the same queue type."),
    ],
)
async def test_when_a_destination_cannot_be_one_then_the_task_is_refused(
    service: Service, name: str, message: str
) -> None:
    _, dead = await _dead_letters(service)
    target = await service.queue(name)

    refused = await service.refusal(
        "StartMessageMoveTask",
        SourceArn=await service.arn(dead),
        DestinationArn=await service.arn(target),
    )

    assert (refused.query_code, refused.message) == ("InvalidParameterValue", message)


@pytest.mark.parametrize(
    ("operation", "parameter", "value", "high"),
    [
        ("StartMessageMoveTask", "MaxNumberOfMessagesPerSecond", 0, 500),
        ("StartMessageMoveTask", "MaxNumberOfMessagesPerSecond", 501, 500),
        ("ListMessageMoveTasks", "MaxResults", 0, 10),
        ("ListMessageMoveTasks", "MaxResults", 11, 10),
    ],
)
async def test_when_a_number_is_out_of_range_then_the_call_is_refused(
    service: Service, operation: str, parameter: str, value: int, high: int
) -> None:
    """R44."""
    _, dead = await _dead_letters(service)

    refused = await service.refusal(
        operation, SourceArn=await service.arn(dead), **{parameter: value}
    )

    assert refused.message == (
        f"Value for parameter {parameter} is invalid. "
        f"Reason: You must enter a number that's between 1 and {high}."
    )


async def test_when_there_were_no_tasks_then_the_list_is_empty_but_there(service: Service) -> None:
    """R44."""
    _, dead = await _dead_letters(service)
    arn = await service.arn(dead)

    assert await service.call("ListMessageMoveTasks", SourceArn=arn) == {"Results": []}
    refused = await service.refusal("ListMessageMoveTasks", SourceArn=arn + "x")
    assert refused.code == "ResourceNotFoundException"


async def test_when_a_handle_is_not_one_or_names_no_task_then_cancelling_is_refused(
    service: Service,
) -> None:
    """R44."""
    _, dead = await _dead_letters(service)
    arn = await service.arn(dead)

    def handle(source_arn: str) -> str:
        document = {"taskId": str(uuid4()), "sourceArn": source_arn}
        return base64.b64encode(json.dumps(document).encode()).decode()

    garbage = await service.refusal("CancelMessageMoveTask", TaskHandle="foobared")
    no_task = await service.refusal("CancelMessageMoveTask", TaskHandle=handle(arn))
    no_queue = await service.refusal("CancelMessageMoveTask", TaskHandle=handle(arn + "x"))

    assert garbage.query_code == "InvalidParameterValue"
    assert garbage.message == "Value for parameter TaskHandle is invalid."
    assert (no_task.code, no_task.message) == ("ResourceNotFoundException", "Task does not exist.")
    assert no_queue.message == (
        "The resource that you specified for the SourceArn parameter doesn't exist."
    )
