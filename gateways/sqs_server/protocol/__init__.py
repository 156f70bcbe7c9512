"""SQS on the wire: AWS JSON 1.0 and the older query protocol, to and from a `Call`.

Pure: bytes in, values out, and back. `parse` raises nothing but `SqsError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from ..errors import SqsError, missing_action, serialization_exception, unknown_operation
from . import aws_json, aws_query, xml_answer
from .call import Call, HttpAnswer, base_url_of, identify, trace_of
from .catalog import OPERATIONS

__all__ = ["OPERATIONS", "Call", "HttpAnswer", "parse", "render", "render_error", "speaks_json"]

# AWS refuses these at a queue's address: they are not about a queue.
_NOT_AT_A_QUEUE = frozenset({"CreateQueue", "ListQueues"})


def parse(path: str, query: str, headers: Mapping[str, str], body: bytes) -> Call:
    """Understand a request, or say as AWS would why not.

    Args:
        path: still percent-encoded, without the query string.
        query: still percent-encoded, without the question mark.
        headers: by lower-case name, or a mapping that does not care about case.
        body: all of it; empty for a GET.

    Raises:
        SqsError: no such operation, or not readable as its parameters.
    """
    target = headers.get(aws_json.TARGET)
    identity = identify(headers, query)
    base_url = base_url_of(headers.get("host"))
    if target is not None:
        operation = aws_json.operation_of(target)
        parameters = aws_json.read_parameters(operation, body)
    else:
        operation, parameters = _read_query(path, query, body, base_url)
    return Call(
        operation=operation,
        parameters=parameters,
        account=identity.account,
        region=identity.region,
        base_url=base_url,
        sender=identity.sender,
        is_json=target is not None,
        accepts_json=target is None and accepts_json(headers),
        trace_header=trace_of(headers),
    )


def _read_query(path: str, query: str, body: bytes, base_url: str) -> tuple[str, Mapping[str, Any]]:
    try:
        fields = aws_query.read_form(query) | aws_query.read_form(body.decode())
    except UnicodeDecodeError:
        raise serialization_exception("The request is not a valid form.") from None
    operation = fields.get("Action", "")
    if not operation:
        raise missing_action()
    is_at_a_queue = path.count("/") > 1
    if operation not in OPERATIONS or (is_at_a_queue and operation in _NOT_AT_A_QUEUE):
        raise unknown_operation(operation)
    parameters = aws_query.read_parameters(operation, fields)
    if is_at_a_queue and OPERATIONS[operation].takes_queue_url:
        parameters.setdefault("QueueUrl", base_url + path)
    return operation, parameters


def render(call: Call, result: Mapping[str, Any], request_id: str | None = None) -> HttpAnswer:
    """The answer to a call, in the protocol it came in."""
    if call.is_json:
        write = aws_json.write_result
    else:
        write = aws_query.write_json_result if call.accepts_json else xml_answer.write_result
    return write(call.operation, result, request_id or str(uuid4()))


def render_error(
    error: SqsError, headers: Mapping[str, str], request_id: str | None = None
) -> HttpAnswer:
    """A refusal, in the protocol that the request's headers speak; it need not have been a call."""
    if speaks_json(headers):
        write = aws_json.write_error
    # AWS has no JSON for a request without an action.
    elif accepts_json(headers) and error.query_code != "MissingAction":
        write = aws_query.write_json_error
    else:
        write = xml_answer.write_error
    return write(error, request_id or str(uuid4()))


def speaks_json(headers: Mapping[str, str]) -> bool:
    """Whether a request means to be AWS JSON 1.0."""
    return aws_json.TARGET in headers or "json" in headers.get("content-type", "").lower()


def accepts_json(headers: Mapping[str, str]) -> bool:
    """Whether a query request asks for JSON; a list of kinds leaves it at XML."""
    return headers.get("accept") == "application/json"
