"""A transport that answers from a script, and remembers what it was asked."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any

from gateways._aws.sdk_transport import Polling, Reply, Request
from gateways.sqs.calls import QueueCalls, QueueUrls
from gateways.sqs.wire import encode, entry_request
from pump.message import Message

URL = "https://sqs.eu-west-1.amazonaws.com/123456789012/"
Answer = Reply | Exception | asyncio.Event


class ScriptedTransport:
    """Answers each operation from its script; what has none succeeds with nothing to say.

    An event in a script is a call that stays unanswered until it is set.
    """

    def __init__(self, **scripts: list[Answer]) -> None:
        self._scripts: dict[str, deque[Answer]] = defaultdict(deque)
        for operation, answers in scripts.items():
            self._scripts[operation].extend(answers)
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.pollings: list[Polling] = []

    def requests(self, operation: str) -> list[Mapping[str, Any]]:
        return [request for asked, request in self.asked if asked == operation]

    def calls(self, queue: str) -> QueueCalls:
        urls = QueueUrls(self)
        urls.remember(queue, URL + queue)
        return QueueCalls(self, urls, queue)

    async def open(self) -> None: ...

    async def aclose(self) -> None: ...

    async def call(
        self,
        service: str,
        operation: str,
        request: Request,
        *,
        target: str = "",
        polling: Polling | None = None,
    ) -> Reply:
        self.asked.append((operation, request))
        if polling is not None:
            self.pollings.append(polling)
        script = self._scripts[operation]
        while script:
            answer = script.popleft()
            if isinstance(answer, Exception):
                raise answer
            if not isinstance(answer, asyncio.Event):
                return _whole(operation, request, answer)
            await answer.wait()
        return _whole(operation, request, {})


def _whole(operation: str, request: Request, answer: Reply) -> Reply:
    """An answer that tells of every entry that is sent, as SQS's does, unless it says which."""
    if operation != "send_message_batch" or "Successful" in answer:
        return answer
    failed = {entry["Id"] for entry in answer.get("Failed", ())}
    sent = [entry["Id"] for entry in request["Entries"] if entry["Id"] not in failed]
    return {**answer, "Successful": [{"Id": each, "MessageId": f"sqs-{each}"} for each in sent]}


def received(*messages: Message, attempt: int = 1, receipt: str = "r") -> Reply:
    """What ReceiveMessage answers; receipts are r-0, r-1 …"""
    raw = []
    for position, message in enumerate(messages):
        entry = entry_request(encode(message, is_fifo=False), entry_id="0", delay_s=0)
        raw.append(
            {
                "MessageId": f"sqs-{position}",
                "ReceiptHandle": f"{receipt}-{position}",
                "Body": entry["MessageBody"],
                "Attributes": {"ApproximateReceiveCount": str(attempt)},
                "MessageAttributes": entry["MessageAttributes"],
            }
        )
    return {"Messages": raw}


def failed(position: int, code: str, *, by_sender: bool) -> Reply:
    """A batch's answer that one entry failed."""
    detail = "Value r-1 for parameter ReceiptHandle is invalid. Reason: The receipt has expired."
    entry = {"Id": str(position), "Code": code, "SenderFault": by_sender, "Message": detail}
    return {"Failed": [entry]}
