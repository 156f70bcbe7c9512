"""A hundred operating-system processes and one message: one of them gets it (R13)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pump.message import new_id
from tests.brokers.aws_account import AwsAccount

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

COUNT = 100


def counts_of(task: dict[str, Any]) -> list[int]:
    """What each of the processes got."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.kill.racers"],
        input=json.dumps({"queue": f"race-{new_id()}", "count": COUNT, **task}),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    counts: list[int] = json.loads(done.stdout)
    return counts


def at(account: AwsAccount) -> dict[str, Any]:
    return {
        "region": account.region,
        "endpoint_url": account.endpoint_url,
        "key": account.access_key_id,
        "secret": account.secret_access_key,
    }


def test_when_a_hundred_processes_ask_local_for_one_message_then_one_gets_it(
    tmp_path: Path,
) -> None:
    """R13, R12."""
    task = {"gateway": "local", "path": str(tmp_path / "queues.db"), "wait_s": 2.0}

    assert sorted(counts_of(task)) == [0] * (COUNT - 1) + [1]


@pytest.mark.broker
def test_when_a_hundred_processes_ask_sqs_for_one_message_then_one_gets_it(
    local_aws: AwsAccount,
) -> None:
    """R13, R12."""
    assert sorted(counts_of({"gateway": "sqs", "wait_s": 2.0, **at(local_aws)})) == [0] * (
        COUNT - 1
    ) + [1]


@pytest.mark.broker
@pytest.mark.parametrize("layout", ["leases", "log"])
def test_when_a_hundred_processes_ask_s3_for_one_message_then_one_gets_it(
    aws: AwsAccount, layout: str
) -> None:
    """R13, R12, R47."""
    bucket = f"race-{layout}-{aws.account_id}"
    where = {"LocationConstraint": aws.region}
    aws.client("s3").create_bucket(Bucket=bucket, CreateBucketConfiguration=where)
    task = {"gateway": "s3", "layout": layout, "bucket": bucket, "wait_s": 2.0, **at(aws)}

    assert sorted(counts_of(task)) == [0] * (COUNT - 1) + [1]
