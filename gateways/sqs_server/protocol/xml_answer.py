"""The query protocol's answers in XML, shaped as AWS's and as exact as XML 1.0 can be."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Final, get_args

from ..errors import SqsError
from .call import HttpAnswer, Wire, is_list, is_map, is_shape, members_of
from .catalog import OPERATIONS

NAMESPACE: Final = "http://queue.amazonaws.com/doc/2012-11-05/"
Write = Callable[[Any, "list[str]"], None]
"""Appends the elements of a value to the pieces of a document."""

_DECLARATION: Final = '<?xml version="1.0" encoding="UTF-8"?>'
_CONTENT_TYPE: Final = "text/xml; charset=utf-8"
# A bare carriage return would reach the reader as a line feed; tabs and line feeds survive in
# text. Characters that XML 1.0 cannot carry at all never get into a message body, and become a
# replacement character where a client put them into something else that is repeated to it.
_SPECIAL: Final = re.compile("[&<>\r]|[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ESCAPES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"}


def write_result(operation: str, result: Mapping[str, Any], request_id: str) -> HttpAnswer:
    """The answer to a call."""
    pieces = [_DECLARATION, f'<{operation}Response xmlns="{NAMESPACE}">']
    shape = OPERATIONS[operation].result
    if shape is not None:
        inner: list[str] = []
        _members_writer(shape)(result, inner)
        name = f"{operation}Result"
        pieces += [f"<{name}>", *inner, f"</{name}>"] if inner else [f"<{name}/>"]
    pieces += [
        f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata>",
        f"</{operation}Response>",
    ]
    return _answer(200, pieces, request_id)


def write_error(error: SqsError, request_id: str) -> HttpAnswer:
    """A refusal; a request without an action gets the bare element that AWS gives."""
    if error.query_code == "MissingAction":
        return _answer(error.status, ["<UnknownOperationException/>"], request_id)
    fault = "Sender" if error.is_senders_fault else "Receiver"
    pieces = [
        f'{_DECLARATION}<ErrorResponse xmlns="{NAMESPACE}"><Error><Type>{fault}</Type>',
        f"<Code>{escape(error.query_code)}</Code>",
        f"<Message>{escape(error.query_message)}</Message><Detail/></Error>",
        f"<RequestId>{request_id}</RequestId></ErrorResponse>",
    ]
    return _answer(error.status, pieces, request_id)


def escape(text: str) -> str:
    """Text that an XML 1.0 parser reads back as it was."""
    return _SPECIAL.sub(_escaped, text) if _SPECIAL.search(text) else text


def _escaped(found: re.Match[str]) -> str:
    return _ESCAPES.get(found[0], "\ufffd")


def _answer(status: int, pieces: list[str], request_id: str) -> HttpAnswer:
    headers = {"Content-Type": _CONTENT_TYPE, "x-amzn-RequestId": request_id}
    return HttpAnswer(status, headers, "".join(pieces).encode())


@cache
def _members_writer(shape: Any) -> Write:
    writers = [
        (name, _element_writer(member.wire, member.type))
        for name, member in members_of(shape).items()
    ]

    def write(value: Mapping[str, Any], pieces: list[str]) -> None:
        for name, write_member in writers:
            inner = value.get(name)
            if inner is not None:
                write_member(inner, pieces)

    return write


def _element_writer(wire: Wire, type_: Any) -> Write:
    """Writes a member: one element, or for lists and maps one for each item."""
    if is_list(type_):
        return _list_writer(_element_writer(wire, get_args(type_)[0]))
    if is_map(type_):
        return _map_writer(wire, get_args(type_)[1])
    opening, closing = f"<{wire.name}>", f"</{wire.name}>"
    write_content = _members_writer(type_) if is_shape(type_) else _SCALARS[type_]

    def write(value: Any, pieces: list[str]) -> None:
        pieces.append(opening)
        write_content(value, pieces)
        pieces.append(closing)

    return write


def _list_writer(write_item: Write) -> Write:
    def write(value: Iterable[Any], pieces: list[str]) -> None:
        for item in value:
            write_item(item, pieces)

    return write


def _map_writer(wire: Wire, value_type: Any) -> Write:
    opening, closing = f"<{wire.name}><{wire.key}>", f"</{wire.name}>"
    write_value = _element_writer(Wire(wire.value), value_type)

    def write(value: Mapping[str, Any], pieces: list[str]) -> None:
        for key, inner in value.items():
            pieces.append(f"{opening}{escape(key)}</{wire.key}>")
            write_value(inner, pieces)
            pieces.append(closing)

    return write


def _write_text(value: str, pieces: list[str]) -> None:
    pieces.append(escape(value))


def _write_number(value: int, pieces: list[str]) -> None:
    pieces.append(str(value))


def _write_flag(value: bool, pieces: list[str]) -> None:
    pieces.append("true" if value else "false")


def _write_binary(value: bytes, pieces: list[str]) -> None:
    pieces.append(b64encode(value).decode())


_SCALARS: Final[Mapping[Any, Write]] = {
    str: _write_text,
    int: _write_number,
    bool: _write_flag,
    bytes: _write_binary,
}
