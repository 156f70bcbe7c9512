"""Celery, dramatiq-sqs and taskiq-aio-sqs work on `pump local` as on SQS (R44).

Each is a worker process as its users start it, and a second process that sends the work.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.brokers.aws_account import AwsAccount

from .environments import executable, settings
from .program import Program, running

pytestmark = pytest.mark.broker

PROGRAMS = "tests.sqs_clients.programs"
NUMBERS = range(20)


def run(name: str, environment: dict[str, str]) -> str:
    """What the program that sends the work prints."""
    done = subprocess.run(
        [executable("sqs-clients", "python"), "-m", f"{PROGRAMS}.{name}"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def sums(worker: Program) -> list[int]:
    return sorted(int(worker.expect("sum=").rpartition("=")[2]) for _ in NUMBERS)


def depth(account: AwsAccount, name: str) -> dict[str, str]:
    """How many messages the queue still holds, visible or in flight."""
    sqs = account.client("sqs")
    url = sqs.get_queue_url(QueueName=name)["QueueUrl"]
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    sqs.close()
    return dict(found)


EMPTY = {"ApproximateNumberOfMessages": "0", "ApproximateNumberOfMessagesNotVisible": "0"}


def test_when_celery_uses_it_then_tasks_run_and_retries_come_back(
    local_aws: AwsAccount, tmp_path: Path
) -> None:
    environment = settings(local_aws, tmp_path) | {"RESULTS": str(tmp_path)}
    worker = [executable("sqs-clients", "celery"), "--app", f"{PROGRAMS}.child_celery", "worker"]

    with running([*worker, "--concurrency", "2", "--loglevel", "INFO"], environment) as program:
        program.expect("ready.")
        said = run("send_celery", environment)

    assert f"sums {[2 * number for number in NUMBERS]}" in said
    assert "retries 1" in said
    assert depth(local_aws, "celery") == EMPTY


def test_when_dramatiq_uses_it_then_actors_run_and_retries_come_back(
    local_aws: AwsAccount, tmp_path: Path
) -> None:
    environment = settings(local_aws, tmp_path)
    worker = [executable("sqs-clients", "dramatiq"), f"{PROGRAMS}.child_dramatiq"]

    with running([*worker, "--processes", "1", "--threads", "2"], environment) as program:
        run("send_dramatiq", environment)
        found = sums(program)
        retried = program.expect("stumbled=")

    assert found == [2 * number for number in NUMBERS]
    assert retried.strip() == "stumbled=1"


def test_when_taskiq_uses_it_then_tasks_run_and_delayed_ones_later(
    local_aws: AwsAccount, tmp_path: Path
) -> None:
    environment = settings(local_aws, tmp_path)
    local_aws.client("sqs").create_queue(QueueName="taskiq-sums")
    worker = [executable("sqs-clients", "taskiq"), "worker", f"{PROGRAMS}.child_taskiq:broker"]

    with running([*worker, "--workers", "1"], environment) as program:
        run("send_taskiq", environment)
        found = sums(program)
        delayed = program.expect("sum=")

    assert found == [2 * number for number in NUMBERS]
    assert delayed.strip() == "sum=100"
