"""The server that tests start: `pump local` as a child process, and its end."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from .aws_account import AwsAccount
from .localstack import ROOT
from .pump_local import PumpLocal, PumpLocalFailed, pump_local

pytestmark = pytest.mark.broker

Start = Callable[..., PumpLocal]


def queue_url(server: PumpLocal) -> str:
    """The URL of the queue all of these tests use, made if need be."""
    sqs = AwsAccount(endpoint_url=server.url, access_key_id="111122223333").client("sqs")
    try:
        return str(sqs.create_queue(QueueName="orders")["QueueUrl"])
    finally:
        sqs.close()


def bodies(server: PumpLocal) -> list[str]:
    sqs = AwsAccount(endpoint_url=server.url, access_key_id="111122223333").client("sqs")
    try:
        answer = sqs.receive_message(QueueUrl=queue_url(server), MaxNumberOfMessages=10)
        return [message["Body"] for message in answer.get("Messages", [])]
    finally:
        sqs.close()


def send(server: PumpLocal, body: str) -> None:
    sqs = AwsAccount(endpoint_url=server.url, access_key_id="111122223333").client("sqs")
    sqs.send_message(QueueUrl=queue_url(server), MessageBody=body)
    sqs.close()


def test_when_it_has_started_then_it_answers(own_pump_local: Start) -> None:
    server = own_pump_local()

    with urllib.request.urlopen(f"{server.url}/_health") as answer:
        assert json.loads(answer.read())


@pytest.mark.parametrize(
    ("end", "visible"),
    [(PumpLocal.kill, ["sent"]), (PumpLocal.stop, ["received", "sent"])],
    ids=["kill", "stop"],
)
def test_when_it_ends_and_starts_again_then_what_was_acknowledged_is_there(
    own_pump_local: Start, end: Callable[[PumpLocal], object], visible: list[str]
) -> None:
    """T3, T4, T14: a send that was answered survives; what was in flight is visible again after a
    clean stop, and stays with its consumer after a crash of the server.
    """
    server = own_pump_local()
    send(server, "received")
    taken = bodies(server)
    send(server, "sent")

    end(server)
    server.start()

    assert taken == ["received"]
    assert sorted(bodies(server)) == visible


def test_when_it_is_told_to_end_then_it_ends_well(own_pump_local: Start) -> None:
    assert own_pump_local().stop() == 0


def test_when_servers_have_folders_of_their_own_then_they_share_nothing(
    own_pump_local: Start,
) -> None:
    one, two = own_pump_local(name="one"), own_pump_local(name="two")

    send(one, "for one")

    assert bodies(two) == []


def test_when_it_cannot_start_then_it_is_said_why(own_pump_local: Start) -> None:
    with pytest.raises(PumpLocalFailed, match="no-such-option"):
        own_pump_local("--no-such-option")


def test_when_the_test_run_is_killed_then_the_server_ends_too(tmp_path: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux tells a child of its parent's death")
    code = (
        "import pathlib, sys; from tests.brokers.pump_local import pump_local\n"
        "with pump_local(pathlib.Path(sys.argv[1])) as server:\n"
        "    print(server.pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdout is not None
        server = psutil.Process(int(run.stdout.readline()))
        run.kill()

        gone, _ = psutil.wait_procs([server], timeout=10)

    assert gone == [server]


def test_when_the_block_ends_then_the_process_is_gone(tmp_path: Path) -> None:
    with pump_local(tmp_path) as server:
        process = psutil.Process(server.pid)

    assert not process.is_running()
