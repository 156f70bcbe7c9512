"""Errors as AWS words them, in the protocol of the request they answer."""

from __future__ import annotations

import json
from http import HTTPStatus

from .http_messages import HttpMessage

_JSON = "application/x-amz-json-1.0"


def server_error(status: int) -> HttpMessage:
    """A 5xx as a load balancer gives it: no service wrote it, so it speaks no protocol."""
    return _reply(status, "text/html", f"<html><h1>{HTTPStatus(status).phrase}</h1></html>")


def throttling(request: HttpMessage) -> HttpMessage:
    """The service's own "slow down": SQS in JSON, SNS and S3 in their two kinds of XML."""
    text = "The request was denied due to request throttling."
    if request.header("x-amz-target"):
        fault = {"__type": "com.amazonaws.sqs#RequestThrottled", "message": text}
        reply = _reply(400, _JSON, json.dumps(fault))
        query_error = ("x-amzn-query-error", "RequestThrottled;Sender")
        return HttpMessage(
            start=reply.start, headers=(*reply.headers, query_error), body=reply.body
        )
    if request.is_form:
        error = (
            f"<Error><Type>Sender</Type><Code>Throttling</Code><Message>{text}</Message></Error>"
        )
        return _reply(400, "text/xml", f"<ErrorResponse>{error}</ErrorResponse>")
    error = f"<Error><Code>SlowDown</Code><Message>{text}</Message></Error>"
    return _reply(503, "application/xml", error)


def _reply(status: int, content_type: str, body: str) -> HttpMessage:
    content = body.encode()
    return HttpMessage(
        start=f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        headers=(
            ("Content-Type", content_type),
            ("Content-Length", str(len(content))),
            ("x-amzn-RequestId", "00000000-0000-0000-0000-000000000000"),
        ),
        body=content,
    )
