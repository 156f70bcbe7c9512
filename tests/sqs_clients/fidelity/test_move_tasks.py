"""StartMessageMoveTask and its sisters, as AWS answers them."""

from __future__ import annotations

import base64
import json
from typing import Any
from uuid import UUID

import pytest

from pump.clock import SYSTEM_CLOCK

from .bench import Bench, pause

pytestmark = pytest.mark.broker

TASK = "10f57157-fc38-4da9-a113-4de7e12d05aa"


@pytest.fixture
def bench(json_bench: Bench) -> Bench:
    """The older protocol's client does not know these operations."""
    return json_bench


def dead_letters(bench: Bench, *bodies: str) -> tuple[str, str]:
    """A queue and its dead-letter queue, which these messages have reached."""
    url, dead = bench.make_with_dead_letters()
    for body in bodies:
        bench.send(url, body)
    for _ in range(2 * len(bodies)):
        bench.receive(url, 1, VisibilityTimeout=0)
    assert bench.counts(dead) == (len(bodies), 0, 0)
    return url, dead


def handle(task: str, source: str) -> str:
    return base64.b64encode(json.dumps({"taskId": task, "sourceArn": source}).encode()).decode()


def tasks(bench: Bench, source: str, **request: Any) -> list[dict[str, Any]]:
    answer = bench.sqs.list_message_move_tasks(SourceArn=bench.arn(source), **request)
    return list(answer.get("Results", []))


def wait_until_over(bench: Bench, source: str) -> dict[str, Any]:
    deadline_s = SYSTEM_CLOCK.now_s() + 20
    while (task := tasks(bench, source)[0])["Status"] in ("RUNNING", "CANCELLING"):
        assert SYSTEM_CLOCK.now_s() < deadline_s, task
        pause(0.1)
    return task


def test_when_dead_letters_are_moved_to_a_queue_then_they_arrive_there(bench: Bench) -> None:
    _, dead = dead_letters(bench, "message-1", "message-2")
    target = bench.make()

    answer = bench.sqs.start_message_move_task(
        SourceArn=bench.arn(dead), DestinationArn=bench.arn(target)
    )
    task = wait_until_over(bench, dead)

    started = task.pop("StartedTimestamp")
    assert task == {
        "ApproximateNumberOfMessagesMoved": 2,
        "ApproximateNumberOfMessagesToMove": 2,
        "DestinationArn": bench.arn(target),
        "SourceArn": bench.arn(dead),
        "Status": "COMPLETED",
    }
    assert abs(started - SYSTEM_CLOCK.time_s() * 1_000) < 60_000
    assert sorted(bench.bodies(target)) == ["message-1", "message-2"]
    assert bench.receive(dead) == []
    decoded = json.loads(base64.b64decode(answer["TaskHandle"]))
    assert str(UUID(decoded["taskId"])) == decoded["taskId"]
    assert decoded["sourceArn"] == bench.arn(dead)


def test_when_no_target_is_named_then_they_go_back_where_they_came_from(bench: Bench) -> None:
    url, dead = dead_letters(bench, "message-1", "message-2")
    other = bench.make(RedrivePolicy=bench.redrive(dead, 1))
    bench.send(other, "other")
    bench.receive(other, VisibilityTimeout=0)
    bench.receive(other)

    bench.sqs.start_message_move_task(SourceArn=bench.arn(dead))
    task = wait_until_over(bench, dead)

    assert (task["Status"], task["ApproximateNumberOfMessagesMoved"]) == ("COMPLETED", 3)
    assert "DestinationArn" not in task
    assert sorted(bench.bodies(url)) == ["message-1", "message-2"]
    assert bench.bodies(other) == ["other"]


def test_when_a_rate_is_given_then_the_task_keeps_it(bench: Bench) -> None:
    _, dead = dead_letters(bench, "0", "1", "2")
    target = bench.make()
    started_s = SYSTEM_CLOCK.now_s()

    bench.sqs.start_message_move_task(
        SourceArn=bench.arn(dead),
        DestinationArn=bench.arn(target),
        MaxNumberOfMessagesPerSecond=1,
    )
    wait_until_over(bench, dead)

    assert SYSTEM_CLOCK.now_s() - started_s >= 1.9
    assert sorted(bench.bodies(target)) == ["0", "1", "2"]


def test_when_a_task_is_cancelled_then_the_rest_stays(bench: Bench) -> None:
    _, dead = dead_letters(bench, *(str(number) for number in range(5)))
    target = bench.make()
    answer = bench.sqs.start_message_move_task(
        SourceArn=bench.arn(dead),
        DestinationArn=bench.arn(target),
        MaxNumberOfMessagesPerSecond=1,
    )
    bench.receive_one(target, WaitTimeSeconds=5)

    [running] = tasks(bench, dead)
    cancelled = bench.sqs.cancel_message_move_task(TaskHandle=answer["TaskHandle"])
    task = wait_until_over(bench, dead)

    assert (running["Status"], running["TaskHandle"]) == ("RUNNING", answer["TaskHandle"])
    assert running["MaxNumberOfMessagesPerSecond"] == 1
    assert running["ApproximateNumberOfMessagesToMove"] == 5
    assert cancelled["ApproximateNumberOfMessagesMoved"] < 5
    assert task["Status"] == "CANCELLED"
    assert "TaskHandle" not in task
    assert bench.counts(dead)[0] >= 2


def test_when_a_task_runs_then_a_second_one_is_refused(bench: Bench) -> None:
    _, dead = dead_letters(bench, "0", "1", "2")
    request = {
        "SourceArn": bench.arn(dead),
        "DestinationArn": bench.arn(bench.make()),
        "MaxNumberOfMessagesPerSecond": 1,
    }
    bench.sqs.start_message_move_task(**request)

    refusal = bench.refused("start_message_move_task", **request)

    assert (refusal.code, refusal.status) == ("InvalidParameterValue", 400)
    assert refusal.message == (
        "There is already a task running. Only one active task is allowed for a source queue "
        "arn at a given time."
    )


def test_when_the_target_is_deleted_meanwhile_then_the_task_fails(bench: Bench) -> None:
    _, dead = dead_letters(bench, *(str(number) for number in range(5)))
    target = bench.make()
    bench.sqs.start_message_move_task(
        SourceArn=bench.arn(dead),
        DestinationArn=bench.arn(target),
        MaxNumberOfMessagesPerSecond=1,
    )

    bench.sqs.delete_queue(QueueUrl=target)
    task = wait_until_over(bench, dead)

    assert task["Status"] == "FAILED"
    assert task["FailureReason"] == "AWS.SimpleQueueService.NonExistentQueue"
    assert bench.receive(dead)


def test_when_a_queue_is_no_dead_letter_queue_then_nothing_is_moved(bench: Bench) -> None:
    source, target = bench.make(), bench.make()

    refusal = bench.refused(
        "start_message_move_task", SourceArn=bench.arn(source), DestinationArn=bench.arn(target)
    )

    assert (refusal.code, refusal.message, refusal.status) == (
        "InvalidParameterValue",
        "Source queue must be configured as a Dead Letter Queue.",
        400,
    )


@pytest.mark.parametrize("which", ["SourceArn", "DestinationArn"])
def test_when_a_queue_does_not_exist_then_its_parameter_is_named(bench: Bench, which: str) -> None:
    _, dead = bench.make_with_dead_letters()
    request = {"SourceArn": bench.arn(dead), "DestinationArn": bench.arn(bench.make())}
    request[which] += "-not"

    refusal = bench.refused("start_message_move_task", **request)

    assert (refusal.code, refusal.message, refusal.status) == (
        "ResourceNotFoundException",
        f"The resource that you specified for the {which} parameter doesn't exist.",
        404,
    )


@pytest.mark.parametrize("which", ["SourceArn", "DestinationArn"])
def test_when_an_arn_is_none_then_its_format_is_told(bench: Bench, which: str) -> None:
    _, dead = bench.make_with_dead_letters()

    refusal = bench.refused(
        "start_message_move_task", **{"SourceArn": bench.arn(dead), which: "invalid"}
    )

    assert (refusal.code, refusal.status) == ("InvalidParameterValue", 400)
    assert refusal.message == (
        f"You must use this format to specify the {which}: "
        "arn:<partition>:<service>:<region>:<account-id>:<resource-id>"
    )


def test_when_a_task_would_go_in_circles_then_it_is_refused(bench: Bench) -> None:
    _, dead = bench.make_with_dead_letters()

    refusal = bench.refused(
        "start_message_move_task", SourceArn=bench.arn(dead), DestinationArn=bench.arn(dead)
    )

    assert refusal.message == "Source queue arn and destination queue arn cannot be the same."


@pytest.mark.parametrize(
    ("task", "code", "message", "status"),
    [
        ("garbage", "InvalidParameterValue", "Value for parameter TaskHandle is invalid.", 400),
        (
            "unknown source",
            "ResourceNotFoundException",
            "The resource that you specified for the SourceArn parameter doesn't exist.",
            404,
        ),
        ("unknown task", "ResourceNotFoundException", "Task does not exist.", 404),
    ],
)
def test_when_a_task_cannot_be_cancelled_then_aws_says_why(
    bench: Bench, task: str, code: str, message: str, status: int
) -> None:
    arn = bench.arn(bench.make())
    handles = {
        "garbage": "foobared",
        "unknown source": handle(TASK, f"{arn}-not"),
        "unknown task": handle(TASK, arn),
    }

    refusal = bench.refused("cancel_message_move_task", TaskHandle=handles[task])

    assert (refusal.code, refusal.message, refusal.status) == (code, message, status)


def test_when_there_were_tasks_then_the_newest_is_listed_first(bench: Bench) -> None:
    _, dead = dead_letters(bench, "one")
    for _ in range(2):
        bench.sqs.start_message_move_task(
            SourceArn=bench.arn(dead), DestinationArn=bench.arn(bench.make())
        )
        wait_until_over(bench, dead)

    moved = [task["ApproximateNumberOfMessagesMoved"] for task in tasks(bench, dead, MaxResults=10)]

    assert moved == [0, 1]
    assert len(tasks(bench, dead)) == 1
