"""The sample of the S3 gateway: on the embedded queue, and on S3 by nothing but another URL."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.brokers.aws_account import AwsAccount

from .test_samples import expected_lines, keys_of, run

SAMPLE = "renders_on_s3"


def rendered(cwd: Path, gateway: str = "", **variables: str) -> list[str]:
    """Ask for frames as the studio, render them as a machine, and return what that prints."""
    asked = run("-m", f"samples.{SAMPLE}", *filter(None, [gateway]), cwd=cwd, **variables)
    assert asked.returncode == 0, asked.stderr
    machine = ("-m", "pump", "run", f"samples.{SAMPLE}:app", "--until-empty")
    done = run(*machine, cwd=cwd, PUMP_GATEWAY=gateway, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.timeout(150)
def test_renders_on_s3_runs_without_an_account(tmp_path: Path) -> None:
    """R55: the gateway is chosen by configuration, and the embedded one is the default."""
    assert sorted(rendered(tmp_path)) == expected_lines(SAMPLE)


@pytest.mark.broker
@pytest.mark.timeout(150)
@pytest.mark.parametrize("layout", ["leases", "log"])
def test_renders_on_s3_runs_on_s3(layout: str, aws: AwsAccount, tmp_path: Path) -> None:
    """R55: the same program in a bucket, in either layout."""
    s3, name = aws.client("s3"), f"farm-{aws.account_id}"
    place = {"LocationConstraint": aws.region}
    s3.create_bucket(Bucket=name, CreateBucketConfiguration=place)
    s3.close()
    query = f"region={aws.region}&endpoint={aws.endpoint_url}&layout={layout}"
    gateway = f"s3://{name}/farm?{query}"

    printed = rendered(tmp_path, gateway, **keys_of(aws))
    listed = run(
        "-m", "pump", "queues", "--json", "--gateway", gateway, cwd=tmp_path, **keys_of(aws)
    )

    assert sorted(printed) == expected_lines(SAMPLE)
    depths = {
        each["name"]: each["visible"] + each["in_flight"] for each in json.loads(listed.stdout)
    }
    assert depths == {"renders": 0, "renders-dead": 1}
