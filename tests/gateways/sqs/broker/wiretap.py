"""A fault proxy that also remembers what was asked, and can answer in the service's stead."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from tests.brokers.fault_plan import NO_FAULTS, FaultPlan
from tests.brokers.fault_proxy import FaultProxy
from tests.brokers.http_messages import HttpMessage


class Wiretap(FaultProxy):
    """`asked` are the requests' contents by operation, in the order they came; not kept where
    there are too many to keep.
    """

    def __init__(
        self, upstream_url: str, plan: FaultPlan = NO_FAULTS, *, keeps: bool = True
    ) -> None:
        super().__init__(upstream_url, plan)
        self._keeps = keeps
        self.asked: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self._errors: dict[str, list[str]] = {}

    def refuse(self, operation: str, codes: Iterable[str]) -> None:
        """Answer the next requests of an operation with these error codes of SQS."""
        self._errors[operation] = list(codes)

    async def _answer(self, request: HttpMessage, link: Any) -> None:
        operation = request.operation
        if self._keeps and request.header("x-amz-target"):
            self.asked[operation].append(json.loads(request.body))
        if errors := self._errors.get(operation):
            self.counts[operation] += 1
            await link.send(_refusal(errors.pop(0)))
            return
        await super()._answer(request, link)


def _refusal(code: str) -> HttpMessage:
    text = {"__type": f"com.amazonaws.sqs#{code}", "message": f"{code}, says the test"}
    body = json.dumps(text).encode()
    status = 403 if "Denied" in code else 400
    return HttpMessage(
        start=f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        headers=(
            ("Content-Type", "application/x-amz-json-1.0"),
            ("Content-Length", str(len(body))),
            ("x-amzn-query-error", f"{code};Sender"),
        ),
        body=body,
    )
