"""`pump local` when the disk is full, or the file is not its own (T3)."""

from __future__ import annotations

import resource
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.kill.sqs_server_process import ServerProcess

BODY = "x" * 20_000


def limit_file_size(pid: int, limit: int) -> None:
    """No file of the process may grow beyond `limit`: to it, that is a disk without room."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, hard))


def send_until_refused(client: Any, url: str) -> tuple[int, ClientError]:
    """How many were taken, and why the next one was not."""
    sent = 0
    while True:
        try:
            client.send_message(QueueUrl=url, MessageBody=f"{sent} {BODY}")
        except ClientError as error:
            return sent, error
        sent += 1


def test_when_the_disk_is_full_then_sends_fail_and_nothing_answered_is_lost(
    tmp_path: Path,
) -> None:
    """T3: a proper error, and the server goes on when there is room."""
    with ServerProcess(tmp_path, "--queue", "orders") as server:
        client = server.client()
        url = client.get_queue_url(QueueName="orders")["QueueUrl"]
        assert server.process is not None

        limit_file_size(server.process.pid, 300_000)
        sent, refused = send_until_refused(client, url)
        limit_file_size(server.process.pid, resource.RLIM_INFINITY)
        client.send_message(QueueUrl=url, MessageBody=f"{sent} {BODY}")

        assert refused.response["ResponseMetadata"]["HTTPStatusCode"] == 503
        assert refused.response["Error"]["Code"] == "ServiceUnavailable"
        assert 0 < sent < 100
        server.kill()
        server.start()
        client = server.client()
        received: list[str] = []
        while messages := client.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get(
            "Messages"
        ):
            received += [each["Body"].split()[0] for each in messages]
        assert sorted(map(int, received)) == list(range(sent + 1))


def foreign_text(path: Path) -> None:
    path.write_text("these are my notes, not a database" * 10)


def foreign_database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE mine (id INTEGER)")
    connection.commit()
    connection.close()


def torn_database(path: Path) -> None:
    with ServerProcess(path.parent, "--queue", "orders") as server:
        client = server.client()
        url = client.get_queue_url(QueueName="orders")["QueueUrl"]
        for _ in range(10):
            client.send_message(QueueUrl=url, MessageBody=BODY)
        assert server.terminate() == 0
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    path.write_bytes(content)


@pytest.mark.parametrize("spoil", [foreign_text, foreign_database, torn_database])
def test_when_the_file_is_foreign_or_damaged_then_it_says_so_and_leaves_it_alone(
    spoil: object, tmp_path: Path
) -> None:
    path = tmp_path / "sqs.db"
    assert callable(spoil)
    spoil(path)
    before = path.read_bytes()

    ended = subprocess.run(
        [sys.executable, "-m", "pump", "local", "--port", "0", "--data", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert ended.returncode == 4, ended.stderr
    [line] = ended.stderr.splitlines()
    assert line.startswith("error: ")
    assert "sqs.db" in line
    assert "move it away" in line
    assert path.read_bytes() == before
