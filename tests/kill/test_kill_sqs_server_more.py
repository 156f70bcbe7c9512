"""What `pump local` keeps when it is killed in the middle of more than sends and deletes."""

from __future__ import annotations

import asyncio
import json
import random
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from gateways.sqs_server.engine import SqsEngine, open_store
from gateways.sqs_server.model import NewMessage, QueueId, SqsQueueSettings
from pump.clock import SYSTEM_CLOCK

from .sqs_server_process import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

Fault = (BotoCoreError, ClientError)
ARN = "arn:aws:sqs:us-east-1:000000000000:"


class Crowd:
    """Threads that go on through every crash until they are told to stop."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.is_over = threading.Event()
        self.lock = threading.Lock()
        self.problems: list[str] = []

    @contextmanager
    def at_work(self, *works: Callable[[Any], None]) -> Iterator[None]:
        threads = [threading.Thread(target=self._repeat, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.is_over.set()
            for thread in threads:
                thread.join()

    def _repeat(self, work: Callable[[Any], None]) -> None:
        client = self.server.client()
        while not self.is_over.is_set():
            try:
                work(client)
            except Fault:
                self.is_over.wait(0.02)

    def kill_and_start(self, times: int, chance: random.Random) -> None:
        for _ in range(times):
            threading.Event().wait(chance.uniform(0.3, 1.2))
            self.server.kill()
            self.server.start()


class Line(Crowd):
    """A FIFO queue with a dead-letter queue, whose messages are moved back all the time."""

    def __init__(self, server: ServerProcess, chance: random.Random) -> None:
        super().__init__(server)
        self._chance = chance
        self.sent: set[str] = set()
        """Bodies whose send was answered."""
        self.deleted: set[str] = set()
        """Bodies whose delete was answered."""
        self.unanswered: set[str] = set()
        """Bodies whose delete was asked for and not answered: they may come again, or not."""
        self.moved_back = 0
        """By the tasks that could be asked before the next kill."""
        self._last: dict[str, int] = {}
        client = server.client()
        # Longer than any stall: a receipt must not run out before its delete is asked for.
        fifo = {"FifoQueue": "true", "VisibilityTimeout": "60"}
        client.create_queue(QueueName="dead.fifo", Attributes=fifo)
        policy = {"deadLetterTargetArn": f"{ARN}dead.fifo", "maxReceiveCount": 2}
        client.create_queue(
            QueueName="line.fifo", Attributes={**fifo, "RedrivePolicy": json.dumps(policy)}
        )

    def produce(self, group: str) -> Callable[[Any], None]:
        """Send numbers, each with one id until it is answered."""
        number = 1

        def work(client: Any) -> None:
            nonlocal number
            body = f"{group}-{number}"
            answer = client.send_message(
                QueueUrl="line.fifo",
                MessageBody=body,
                MessageGroupId=group,
                MessageDeduplicationId=body,
            )
            number += 1
            sequence = int(answer["SequenceNumber"])
            with self.lock:
                self.sent.add(body)
                if sequence <= self._last.get(group, 0):
                    self.problems.append(f"{body} has a number given before")
                self._last[group] = sequence
            self.is_over.wait(0.01)

        return work

    def consume(self, client: Any) -> None:
        """Delete most, and give some back, to be dead-lettered the next time but one."""
        for message in client.receive_message(
            QueueUrl="line.fifo", MaxNumberOfMessages=5, WaitTimeSeconds=1
        ).get("Messages", []):
            if self._chance.random() < 0.6:
                self.delete(client, "line.fifo", message)
            else:
                client.change_message_visibility(
                    QueueUrl="line.fifo",
                    ReceiptHandle=message["ReceiptHandle"],
                    VisibilityTimeout=0,
                )

    def delete(self, client: Any, queue: str, message: dict[str, Any]) -> None:
        body = message["Body"]
        with self.lock:
            if body in self.deleted:
                self.problems.append(f"{body} came back to {queue}")
        try:
            client.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
        except BotoCoreError:
            # Killed before or after it was carried out, which nobody can tell. A refusal
            # (`ClientError`) is an answer: the message is still there.
            with self.lock:
                self.unanswered.add(body)
            raise
        with self.lock:
            self.deleted.add(body)

    def move_back(self, client: Any) -> None:
        client.start_message_move_task(SourceArn=f"{ARN}dead.fifo")
        self.is_over.wait(0.2)
        [newest] = client.list_message_move_tasks(SourceArn=f"{ARN}dead.fifo")["Results"]
        self.moved_back += newest["ApproximateNumberOfMessagesMoved"]

    def drain(self) -> None:
        client = self.server.client()
        while not self._is_empty(client):
            for queue in ("line.fifo", "dead.fifo"):
                for message in client.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get(
                    "Messages", []
                ):
                    self.delete(client, queue, message)
            threading.Event().wait(0.02)

    def _is_empty(self, client: Any) -> bool:
        for queue in ("line.fifo", "dead.fifo"):
            attributes = client.get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])
            for name in ("", "NotVisible", "Delayed"):
                if attributes["Attributes"][f"ApproximateNumberOfMessages{name}"] != "0":
                    return False
        return True


def test_when_killed_between_redrives_and_moves_then_every_message_is_somewhere_once(
    tmp_path: Path,
) -> None:
    """R44, T3, T4, T5: sends tried again until answered are stored once; no move loses one."""
    kills, seed = 8, random.SystemRandom().randrange(1_000_000)
    chance = random.Random(seed)
    # A consumer that a kill surprises drops what it has: the groups must not rest for that.
    with ServerProcess(tmp_path, "--keep-leases", "never") as server:
        line = Line(server, chance)
        works = [line.produce("a"), line.produce("b"), line.consume, line.consume, line.move_back]
        with line.at_work(*works):
            line.kill_and_start(kills, chance)
        # What the last faults left in flight becomes visible.
        server.kill()
        server.start()
        line.drain()

    assert len(line.sent) > 100
    assert line.moved_back > 0
    assert len(line.unanswered) <= kills * 2, "more than one for each kill and consumer"
    assert line.sent - line.deleted - line.unanswered == set(), f"lost, with seed {seed}"
    assert line.problems == [], f"with seed {seed}"


def test_when_killed_between_deletions_of_a_queue_and_purges_then_no_message_comes_back(
    tmp_path: Path,
) -> None:
    """T3: an answered DeleteQueue or PurgeQueue is final, also for a queue of the same name."""
    seed = random.SystemRandom().randrange(1_000_000)
    with ServerProcess(tmp_path) as server:
        crowd = Crowd(server)
        rounds = 0

        def use(client: Any) -> None:
            nonlocal rounds
            client.create_queue(QueueName="brief")
            client.send_message(QueueUrl="brief", MessageBody="of the old queue")
            client.delete_queue(QueueUrl="brief")
            client.create_queue(QueueName="brief")
            received = client.receive_message(QueueUrl="brief").get("Messages", [])
            client.send_message(QueueUrl="brief", MessageBody="to be purged")
            client.purge_queue(QueueUrl="brief")
            received += client.receive_message(QueueUrl="brief").get("Messages", [])
            crowd.problems += [each["Body"] for each in received]
            rounds += 1

        with crowd.at_work(use):
            crowd.kill_and_start(6, random.Random(seed))

    assert rounds > 10
    assert crowd.problems == [], f"with seed {seed}"


def refusal(call: Callable[..., Any], **parameters: Any) -> str:
    """The code with which a call is refused; empty when it was not."""
    try:
        call(**parameters)
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return ""


def receive_all(client: Any, queue: str) -> list[str]:
    bodies: list[str] = []
    while messages := client.receive_message(
        QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=2
    ).get("Messages"):
        bodies += [each["Body"] for each in messages]
    return bodies


def test_when_the_disk_is_full_then_nothing_is_changed_by_halves(tmp_path: Path) -> None:
    """T3: deletes, redrives, purges, moves and new queues are refused, and work later."""
    with ServerProcess(tmp_path, "--queue", "dead") as server:
        client = server.client()
        policy = {"deadLetterTargetArn": f"{ARN}dead", "maxReceiveCount": 1}
        client.create_queue(
            QueueName="source",
            Attributes={"RedrivePolicy": json.dumps(policy), "VisibilityTimeout": "1"},
        )
        client.create_queue(QueueName="line.fifo", Attributes={"FifoQueue": "true"})
        for number in range(6):
            client.send_message(QueueUrl="source", MessageBody=str(number))
        held = client.receive_message(QueueUrl="source", MaxNumberOfMessages=3)["Messages"]
        threading.Event().wait(1.1)

        assert server.process is not None
        _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (1_000, hard))
        receipt = held[0]["ReceiptHandle"]
        one = {"MessageBody": "one", "MessageGroupId": "g", "MessageDeduplicationId": "d"}
        refusals = {
            refusal(client.receive_message, QueueUrl="source", MaxNumberOfMessages=10),
            refusal(client.delete_message, QueueUrl="source", ReceiptHandle=receipt),
            refusal(client.purge_queue, QueueUrl="source"),
            refusal(client.delete_queue, QueueUrl="source"),
            refusal(client.create_queue, QueueName="another"),
            refusal(client.start_message_move_task, SourceArn=f"{ARN}dead"),
            refusal(client.send_message, QueueUrl="line.fifo", **one),
        }
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (hard, hard))

        assert refusals == {"ServiceUnavailable"}
        assert "SequenceNumber" in client.send_message(QueueUrl="line.fifo", **one)
        assert receive_all(client, "line.fifo") == ["one"]
        urls = client.list_queues()["QueueUrls"]
        assert sorted(url.rpartition("/")[2] for url in urls) == ["dead", "line.fifo", "source"]
        delivered = receive_all(client, "source")
        assert sorted(delivered) == ["3", "4", "5"]
        server.kill()
        server.start()
        client = server.client()
        left = receive_all(client, "source") + receive_all(client, "dead")
        assert sorted(left) == ["0", "1", "2", "3", "4", "5"]


async def test_when_many_queues_have_many_delayed_messages_then_the_start_is_as_fast_as_ever(
    tmp_path: Path,
) -> None:
    """Its cost grows with messages and queues, not with their product: that would be a thousand
    times as much. Counted in processor time, of which a busy machine takes none away.
    """
    await fill(tmp_path / "one", queue_count=1)
    await fill(tmp_path / "many", queue_count=1_000)

    one_s = await cost_of_opening(tmp_path / "one")
    many_s = await cost_of_opening(tmp_path / "many")

    assert many_s < one_s * 50


async def fill(folder: Path, *, queue_count: int, message_count: int = 20_000) -> None:
    engine = SqsEngine(SYSTEM_CLOCK, open_store(folder))
    await engine.open()
    queues = [
        await engine.create(SqsQueueSettings(address=QueueId("000000000000", "eu-west-1", f"q{n}")))
        for n in range(queue_count)
    ]
    delayed = NewMessage(body="x", delay_s=900)
    sending = [engine.send(queues[n % queue_count], [delayed]) for n in range(message_count)]
    await asyncio.gather(*sending)
    await engine.aclose()


async def cost_of_opening(folder: Path) -> float:
    engine = SqsEngine(SYSTEM_CLOCK, open_store(folder))
    before_s = time.process_time()
    await engine.open()
    took_s = time.process_time() - before_s
    await engine.aclose()
    return took_s
