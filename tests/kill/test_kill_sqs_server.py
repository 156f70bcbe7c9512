"""What `pump local` keeps when it is killed: every send and every delete it has answered."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from .sqs_server_process import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

Fault = (BotoCoreError, ClientError)


class Traffic:
    """Producers and consumers that go on through every crash, and note what was answered."""

    def __init__(self, server: ServerProcess, queue_url: str) -> None:
        self._server = server
        self._queue_url = queue_url
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self.sent: set[str] = set()
        """Bodies whose send was answered with success."""
        self.deleted: set[str] = set()
        """Bodies whose delete was answered with success."""
        self.unanswered: set[str] = set()
        """Bodies whose delete was asked for and not answered: they may come again, or not."""
        self.returned: Counter[str] = Counter()
        """Bodies that came again after such a delete."""

    def produce(self, name: str) -> None:
        client, number = self._server.client(), 0
        while not self._is_over.is_set():
            bodies = {str(n): f"{name}-{number + n}" for n in range(10)}
            number += 10
            try:
                answer = client.send_message_batch(
                    QueueUrl=self._queue_url,
                    Entries=[{"Id": n, "MessageBody": body} for n, body in bodies.items()],
                )
            except Fault:
                self._is_over.wait(0.05)
                continue
            with self._lock:
                self.sent |= {bodies[each["Id"]] for each in answer["Successful"]}

    def consume(self, *, until_empty: bool = False) -> None:
        client = self._server.client()
        while until_empty or not self._is_over.is_set():
            try:
                messages = client.receive_message(
                    QueueUrl=self._queue_url, MaxNumberOfMessages=10, WaitTimeSeconds=1
                ).get("Messages", [])
                if not messages and until_empty:
                    return
                self._delete(client, messages)
            except Fault:
                self._is_over.wait(0.05)

    def _delete(self, client: Any, messages: list[dict[str, Any]]) -> None:
        bodies = {str(n): each["Body"] for n, each in enumerate(messages)}
        with self._lock:
            self.returned.update(self.deleted & set(bodies.values()))
        if not messages:
            return
        entries = [
            {"Id": str(n), "ReceiptHandle": each["ReceiptHandle"]}
            for n, each in enumerate(messages)
        ]
        try:
            answer = client.delete_message_batch(QueueUrl=self._queue_url, Entries=entries)
        except BotoCoreError:
            with self._lock:
                self.unanswered |= set(bodies.values())
            raise
        with self._lock:
            self.deleted |= {bodies[each["Id"]] for each in answer.get("Successful", [])}

    def stop(self) -> None:
        self._is_over.set()


def test_when_the_server_is_killed_eight_times_under_load_then_no_answered_call_is_undone(
    tmp_path: Path,
) -> None:
    """R44, R45, T3, T4: acknowledged sends survive, and what was deleted does not come back."""
    seed = random.SystemRandom().randrange(1_000_000)
    chance = random.Random(seed)
    with ServerProcess(tmp_path) as server:
        url = server.client().create_queue(
            QueueName="load", Attributes={"VisibilityTimeout": "600"}
        )["QueueUrl"]
        traffic = Traffic(server, url)
        threads = [threading.Thread(target=traffic.produce, args=(n,)) for n in "abc"]
        threads += [threading.Thread(target=traffic.consume) for _ in range(2)]
        for thread in threads:
            thread.start()

        for _ in range(8):
            threading.Event().wait(chance.uniform(0.2, 1.5))
            server.kill()
            server.start()
        traffic.stop()
        for thread in threads:
            thread.join()
        # A clean stop shows what is in flight, long before its ten minutes are over.
        server.terminate()
        server.start()
        traffic.consume(until_empty=True)

    assert len(traffic.sent) > 500
    lost = traffic.sent - traffic.deleted - traffic.unanswered
    assert lost == set(), f"with seed {seed}"
    assert traffic.returned == {}, f"with seed {seed}"


def test_when_killed_then_counts_windows_and_queues_are_as_they_were(tmp_path: Path) -> None:
    """R44, T4: receive counts, redrive, de-duplication, sequence, attributes and tags survive."""
    with ServerProcess(tmp_path, "--keep-leases", "never") as server:
        client = server.client()
        dead = client.create_queue(QueueName="dead")["QueueUrl"]
        arn = client.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])
        policy = {
            "deadLetterTargetArn": arn["Attributes"]["QueueArn"],
            "maxReceiveCount": "2",
        }
        source = client.create_queue(
            QueueName="source",
            Attributes={"RedrivePolicy": json.dumps(policy), "VisibilityTimeout": "600"},
            tags={"team": "pumps"},
        )["QueueUrl"]
        line = client.create_queue(QueueName="line.fifo", Attributes={"FifoQueue": "true"})[
            "QueueUrl"
        ]
        client.send_message(QueueUrl=source, MessageBody="poison")
        first = client.send_message(
            QueueUrl=line, MessageBody="one", MessageGroupId="g", MessageDeduplicationId="d"
        )
        assert len(client.receive_message(QueueUrl=source)["Messages"]) == 1

        server.kill()
        server.start()
        client = server.client()

        [again] = client.receive_message(
            QueueUrl=source, MessageSystemAttributeNames=["ApproximateReceiveCount"]
        )["Messages"]
        assert again["Attributes"]["ApproximateReceiveCount"] == "2"
        twin = client.send_message(
            QueueUrl=line, MessageBody="one", MessageGroupId="g", MessageDeduplicationId="d"
        )
        assert twin["MessageId"] == first["MessageId"]
        assert twin["SequenceNumber"] == first["SequenceNumber"]
        after = client.send_message(
            QueueUrl=line, MessageBody="two", MessageGroupId="g", MessageDeduplicationId="e"
        )
        assert int(after["SequenceNumber"]) > int(first["SequenceNumber"])
        assert client.list_queue_tags(QueueUrl=source)["Tags"] == {"team": "pumps"}

        server.kill()
        server.start()
        client = server.client()

        assert "Messages" not in client.receive_message(QueueUrl=source)
        [dead_lettered] = client.receive_message(QueueUrl=dead)["Messages"]
        assert dead_lettered["Body"] == "poison"


def test_when_terminated_then_it_ends_in_order_and_what_was_in_flight_is_visible_again(
    tmp_path: Path,
) -> None:
    """R45: exit code 0, nothing lost."""
    with ServerProcess(tmp_path, "--queue", "orders") as server:
        client = server.client()
        url = client.get_queue_url(QueueName="orders")["QueueUrl"]
        client.send_message(QueueUrl=url, MessageBody="in hand")
        assert client.receive_message(QueueUrl=url)["Messages"]

        assert server.terminate() == 0
        server.start()

        [message] = server.client().receive_message(QueueUrl=url)["Messages"]
        assert message["Body"] == "in hand"


def test_when_the_server_is_killed_then_a_living_consumer_still_has_its_message(
    tmp_path: Path,
) -> None:
    """R45, T4, T14: no second owner, and its receipt extends and deletes."""
    with ServerProcess(tmp_path, "--queue", "orders", "--queue", "line.fifo") as server:
        client = server.client()
        held = {}
        for name in ("orders", "line.fifo"):
            group = {"MessageGroupId": "g", "MessageDeduplicationId": "d"} if "." in name else {}
            client.send_message(QueueUrl=name, MessageBody="in hand", **group)
            held[name] = client.receive_message(QueueUrl=name, VisibilityTimeout=600)["Messages"][0]

        server.kill()
        server.start()
        client = server.client()

        for name, message in held.items():
            receipt = {"QueueUrl": name, "ReceiptHandle": message["ReceiptHandle"]}
            assert "Messages" not in client.receive_message(QueueUrl=name)
            client.change_message_visibility(**receipt, VisibilityTimeout=500)
            client.delete_message(**receipt)
            counts = client.get_queue_attributes(QueueUrl=name, AttributeNames=["All"])
            assert counts["Attributes"]["ApproximateNumberOfMessagesNotVisible"] == "0"


def test_when_two_servers_are_given_one_folder_then_the_second_says_so(tmp_path: Path) -> None:
    import subprocess
    import sys

    with ServerProcess(tmp_path):
        second = subprocess.run(
            [sys.executable, "-m", "pump", "local", "--port", "0", "--data", str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=60,
        )

    assert second.returncode == 4
    assert "another" in second.stderr
