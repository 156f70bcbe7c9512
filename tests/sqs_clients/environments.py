"""Where other people's SQS clients are installed, and what they are told about the server.

Only what a user would set: the endpoint, a region and credentials.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.brokers.aws_account import AwsAccount

ROOT = Path(__file__).resolve().parents[2]


def executable(environment: str, name: str) -> str:
    """A program of `.venv-<environment>`."""
    path = ROOT / f".venv-{environment}" / "bin" / name
    if not path.exists():
        pytest.fail(f"{path.relative_to(ROOT)} is missing: run `make test-brokers`")
    return str(path)


def settings(account: AwsAccount, home: Path) -> dict[str, str]:
    """The environment of a client's process: nothing of the developer's own but the path."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home),
        "AWS_ENDPOINT_URL_SQS": account.endpoint_url,
        "AWS_DEFAULT_REGION": account.region,
        "AWS_ACCESS_KEY_ID": account.access_key_id,
        "AWS_SECRET_ACCESS_KEY": account.secret_access_key,
        "AWS_EC2_METADATA_DISABLED": "true",
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
    }
