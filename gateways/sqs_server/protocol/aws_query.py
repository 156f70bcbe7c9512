"""The query protocol: a form or query string of dotted names, answered in JSON on request.

`SendMessageBatchRequestEntry.1.MessageAttribute.2.Value.DataType=String` becomes a tree, and the
shape of the operation turns the tree into parameters. Accepted besides AWS's flattened spelling:
`Name.member.N`, the JSON protocol's name of a list, and a single item without a number
(`Attribute.Name=…`), which AWS's older documents use.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, get_args
from urllib.parse import parse_qsl

import msgspec

from ..errors import SqsError, serialization_exception
from .call import HttpAnswer, ShapeMember, Wire, is_list, is_map, is_shape, members_of
from .catalog import OPERATIONS

Read = Callable[[Any], Any]
"""From a node of the tree, a string or a dict of nodes, to a value of a parameter."""

# Ten entries with ten attributes of three fields each are 400 or so; each field costs time.
_MAX_FIELDS: Final = 10_000
_MAX_DEPTH: Final = 8
_MAX_DIGITS: Final = 18


def read_form(text: str) -> dict[str, str]:
    """The fields of a form or query string; of a repeated one the last.

    Raises:
        SqsError: not UTF-8, or more fields than any request needs.
    """
    if not text:
        return {}
    try:
        fields = parse_qsl(
            text, keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict"
        )
    except ValueError:
        raise serialization_exception("The request is not a valid form.") from None
    return dict(fields)


def read_parameters(operation: str, fields: Mapping[str, str]) -> dict[str, Any]:
    """The parameters of an operation; fields that it does not know are left out.

    Raises:
        SqsError: a field's value is not of its type.
    """
    parameters: dict[str, Any] = _reader(OPERATIONS[operation].request)(_tree_of(fields))
    return parameters


def _tree_of(fields: Mapping[str, str]) -> dict[str, Any]:
    root: dict[str, Any] = {}
    for name, value in fields.items():
        *parents, leaf = name.split(".", _MAX_DEPTH)
        node = root
        for parent in parents:
            child = node.get(parent)
            if not isinstance(child, dict):
                child = node[parent] = {}
            node = child
        node.setdefault(leaf, value)
    return root


@cache
def _reader(type_: Any, wire: Wire | None = None) -> Read:
    if is_shape(type_):
        return _shape_reader(type_)
    if is_list(type_):
        return _list_reader(_reader(get_args(type_)[0]))
    if is_map(type_):
        assert wire is not None
        return _map_reader(wire, _reader(get_args(type_)[1]))
    return _SCALARS[type_]


def _shape_reader(shape: Any) -> Read:
    readers = [
        (name, member.wire.name, _reader(member.type, member.wire))
        for name, member in members_of(shape).items()
    ]

    def read(node: Any) -> dict[str, Any]:
        if not isinstance(node, dict):
            if node:
                raise serialization_exception("Unexpected value where a structure was expected.")
            return {}
        found = {}
        for name, wire_name, read_member in readers:
            inner = node.get(wire_name, node.get(name))
            if inner is not None:
                found[name] = read_member(inner)
        return found

    return read


def _list_reader(read_item: Read) -> Read:
    def read(node: Any) -> list[Any]:
        return [read_item(item) for item in _items(node)]

    return read


def _map_reader(wire: Wire, read_value: Read) -> Read:
    def read(node: Any) -> dict[str, Any]:
        found = {}
        for item in _items(node):
            if not isinstance(item, dict) or not isinstance(item.get(wire.key), str):
                raise serialization_exception(f"Every {wire.name} needs a {wire.key}.")
            found[item[wire.key]] = read_value(item.get(wire.value, ""))
        return found

    return read


def _items(node: Any) -> list[Any]:
    if isinstance(node, str):
        return [node] if node else []
    if isinstance(node.get("member"), dict):
        node = node["member"]
    numbered = [(int(key), item) for key, item in node.items() if _is_number(key)]
    if not numbered:
        return [node]
    numbered.sort(key=_by_number)
    return [item for _, item in numbered]


def _by_number(numbered: tuple[int, Any]) -> int:
    return numbered[0]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS


def _read_text(node: Any) -> str:
    if not isinstance(node, str):
        raise serialization_exception("Unexpected structure where a value was expected.")
    return node


def _read_number(node: Any) -> int:
    text = _read_text(node)
    if not _is_number(text.removeprefix("-")):
        raise serialization_exception(f"{text[:40]} can not be converted to an Integer")
    return int(text)


def _read_binary(node: Any) -> bytes:
    try:
        return b64decode(_read_text(node), validate=True)
    except ValueError:
        raise serialization_exception("A binary value is not valid base64.") from None


# No operation takes a truth value.
_SCALARS: Final[Mapping[Any, Read]] = {
    str: _read_text,
    int: _read_number,
    bytes: _read_binary,
}


# The query protocol's answers in JSON, on request: the XML's elements, with maps as lists.
#
# Not AWS JSON 1.0. SDKs do not use it; people with a browser or curl do. As on AWS, what is absent
# is null, and two lists are written with a small letter.

_CONTENT_TYPE: Final = "application/json"
_SMALL: Final = {"Messages": "messages", "QueueUrls": "queueUrls"}


def write_json_result(operation: str, result: Mapping[str, Any], request_id: str) -> HttpAnswer:
    """The answer to a call."""
    response: dict[str, Any] = {"ResponseMetadata": {"RequestId": request_id}}
    shape = OPERATIONS[operation].result
    if shape is not None:
        response[f"{operation}Result"] = _structure(shape, result)
    return _answer(200, {f"{operation}Response": response}, request_id)


def write_json_error(error: SqsError, request_id: str) -> HttpAnswer:
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
