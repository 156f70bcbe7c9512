"""A workbench on an SQS server: short verbs for tests that say what AWS does."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import pytest
from botocore.exceptions import ClientError

FIFO = {"FifoQueue": "true"}
CONTENT = {**FIFO, "ContentBasedDeduplication": "true"}


@attrs.frozen
class Refusal:
    """What a client is told when the server says no."""

    code: str
    message: str
    status: int


@attrs.define(eq=False)
class Bench:
    """A client, its protocol's name, and the queues made with it."""

    sqs: Any
    protocol: str
    account_id: str
    region: str
    _made: list[str] = attrs.field(factory=list)

    def name(self, suffix: str = "") -> str:
        """A queue name nobody else uses."""
        return f"q-{secrets.token_hex(6)}{suffix}"

    def make(self, name: str = "", **attributes: str) -> str:
        """Create a queue, and give its URL."""
        is_fifo = attributes.get("FifoQueue") == "true"
        name = name or self.name(".fifo" if is_fifo else "")
        return self.create(QueueName=name, Attributes=attributes)

    def create(self, **request: Any) -> str:
        """CreateQueue as it is; the queue goes with the test."""
        url = str(self.sqs.create_queue(**request)["QueueUrl"])
        self._made.append(url)
        return url

    def make_with_dead_letters(self, max_receives: int = 1, **attributes: str) -> tuple[str, str]:
        """A queue and the one its dead letters go to."""
        same_kind = FIFO if attributes.get("FifoQueue") == "true" else {}
        dead = self.make(**same_kind)
        return self.make(**attributes, RedrivePolicy=self.redrive(dead, max_receives)), dead

    def redrive(self, dead: str, max_receives: int) -> str:
        return json.dumps({"deadLetterTargetArn": self.arn(dead), "maxReceiveCount": max_receives})

    def arn(self, url: str) -> str:
        return f"arn:aws:sqs:{self.region}:{self.account_id}:{url.rpartition('/')[2]}"

    def attributes(self, url: str, *names: str) -> dict[str, str]:
        answer = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names or ("All",))
        return dict(answer.get("Attributes", {}))

    def set(self, url: str, **attributes: str) -> None:
        self.sqs.set_queue_attributes(QueueUrl=url, Attributes=attributes)

    def send(self, url: str, body: str = "body", **request: Any) -> dict[str, Any]:
        return dict(self.sqs.send_message(QueueUrl=url, MessageBody=body, **request))

    def send_all(self, url: str, *bodies: str) -> None:
        """To a FIFO queue, each to the group that its body begins with: `g1-m1` to `g1`."""
        for body in bodies:
            self.send(url, body, MessageGroupId=body.partition("-")[0])

    def receive(self, url: str, max_count: int = 10, **request: Any) -> list[dict[str, Any]]:
        answer = self.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=max_count, **request)
        return list(answer.get("Messages", []))

    def receive_one(self, url: str, **request: Any) -> dict[str, Any]:
        [message] = self.receive(url, 1, **request)
        return message

    def bodies(self, url: str, max_count: int = 10, **request: Any) -> list[str]:
        return [message["Body"] for message in self.receive(url, max_count, **request)]

    def delete(self, url: str, *messages: Mapping[str, Any]) -> None:
        for message in messages:
            self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    def hide(self, url: str, message: Mapping[str, Any], seconds: int) -> None:
        self.sqs.change_message_visibility(
            QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=seconds
        )

    def counts(self, url: str) -> tuple[int, int, int]:
        """Visible, in flight, delayed."""
        found = self.attributes(url)
        names = ("", "NotVisible", "Delayed")
        visible, hidden, delayed = (
            int(found[f"ApproximateNumberOfMessages{name}"]) for name in names
        )
        return visible, hidden, delayed

    def refused(self, operation: str, **request: Any) -> Refusal:
        """The server's no to a call."""
        with pytest.raises(ClientError) as caught:
            getattr(self.sqs, operation)(**request)
        answer = caught.value.response
        return Refusal(
            code=answer["Error"]["Code"],
            message=answer["Error"]["Message"],
            status=answer["ResponseMetadata"]["HTTPStatusCode"],
        )

    def sweep(self) -> None:
        for url in self._made:
            try:
                self.sqs.delete_queue(QueueUrl=url)
            except self.sqs.exceptions.QueueDoesNotExist:
                continue
        self._made.clear()


def pause(seconds: float) -> None:
    """Let real time pass where no receive may wait for it."""
    threading.Event().wait(seconds)


def entries(bodies: Sequence[str], **fields: Any) -> list[dict[str, Any]]:
    """Batch entries with these bodies, numbered from 0."""
    return [
        {"Id": str(number), "MessageBody": body, **fields} for number, body in enumerate(bodies)
    ]
