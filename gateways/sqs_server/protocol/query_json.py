"""The query protocol's answers in JSON, on request: the XML's elements, with maps as lists.

Not AWS JSON 1.0. SDKs do not use it; people with a browser or curl do. As on AWS, what is absent is
null, and two lists are written with a small letter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args

import msgspec

from ..errors import SqsError
from .call import HttpAnswer, ShapeMember, is_list, is_map, is_shape, members_of
from .catalog import OPERATIONS

_CONTENT_TYPE: Final = "application/json"
_SMALL: Final = {"Messages": "messages", "QueueUrls": "queueUrls"}


def write_result(operation: str, result: Mapping[str, Any], request_id: str) -> HttpAnswer:
    """The answer to a call."""
    response: dict[str, Any] = {"ResponseMetadata": {"RequestId": request_id}}
    shape = OPERATIONS[operation].result
    if shape is not None:
        response[f"{operation}Result"] = _structure(shape, result)
    return _answer(200, {f"{operation}Response": response}, request_id)


def write_error(error: SqsError, request_id: str) -> HttpAnswer:
    """A refusal."""
    body = {
        "Error": {
            "Type": "Sender" if error.is_senders_fault else "Receiver",
            "Code": error.query_code,
            "Message": error.query_message.encode(errors="replace").decode(),
            "Detail": None,
        },
        "RequestId": request_id,
    }
    return _answer(error.status, body, request_id)


def _answer(status: int, body: Mapping[str, Any], request_id: str) -> HttpAnswer:
    headers = {"Content-Type": _CONTENT_TYPE, "x-amzn-RequestId": request_id}
    return HttpAnswer(status, headers, msgspec.json.encode(body))


def _structure(shape: Any, value: Mapping[str, Any]) -> dict[str, Any]:
    return {
        _SMALL.get(name, name): _value(member, value[name]) if name in value else None
        for name, member in members_of(shape).items()
    }


def _value(member: ShapeMember, value: Any) -> Any:
    if is_shape(member.type):
        return _structure(member.type, value)
    if is_list(member.type):
        item = ShapeMember(member.wire, get_args(member.type)[0])
        return [_value(item, inner) for inner in value]
    if is_map(member.type):
        wire, item = member.wire, ShapeMember(member.wire, get_args(member.type)[1])
        return [{wire.key: key, wire.value: _value(item, inner)} for key, inner in value.items()]
    return value
