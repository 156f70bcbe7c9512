"""The XML of S3: a list of keys, a request to delete some, and what came of it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import unquote_plus
from xml.etree.ElementTree import Element, ParseError, fromstring
from xml.sax.saxutils import escape

from ..transport import Reply

_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
# An XML parser makes one line feed of any line end it finds as it is.
_LINE_ENDS = {"\r": "&#xD;", "\n": "&#xA;"}


def root_of(body: bytes) -> Element | None:
    """The document of a successful reply; None for one that is broken, or is an error after all.

    S3 has said 200 before it knew. A document type, with which a few bytes can be made to fill a
    memory, is nothing S3 sends.
    """
    if b"<!DOCTYPE" in body:
        return None
    try:
        root = fromstring(body)
    except ParseError:
        return None
    return None if _name(root) == "Error" else root


def deletion(keys: Iterable[str], *, is_quiet: bool) -> bytes:
    """The body of a DeleteObjects."""
    objects = "".join([f"<Object><Key>{escape(key, _LINE_ENDS)}</Key></Object>" for key in keys])
    quiet = "<Quiet>true</Quiet>" if is_quiet else ""
    return f'<Delete xmlns="{_NAMESPACE}">{objects}{quiet}</Delete>'.encode()


def read_listing(root: Element) -> Reply:
    """A page of ListObjectsV2. Keys come encoded, because XML cannot hold every one of them."""
    reply: Reply = {}
    contents = []
    for part in root:
        name = _name(part)
        if name == "Contents":
            contents.append(_fields(part, _OBJECT))
        elif name in _LISTING:
            reply[name] = _LISTING[name](part.text or "")
    if contents:
        reply["Contents"] = contents
    if reply.get("EncodingType") == "url":
        _decode_keys(reply, contents)
    return reply


def read_deletion(root: Element) -> Reply:
    """What a DeleteObjects did and did not delete."""
    reply: Reply = {}
    for part in root:
        kind = {"Deleted": "Deleted", "Error": "Errors"}.get(_name(part))
        if kind is not None:
            reply.setdefault(kind, []).append(_fields(part, _DELETED))
    return reply


def _decode_keys(reply: Reply, contents: list[dict[str, Any]]) -> None:
    for entry in contents:
        entry["Key"] = unquote_plus(entry["Key"])
    for name in ("Prefix", "StartAfter", "Delimiter"):
        if name in reply:
            reply[name] = unquote_plus(reply[name])


def _fields(part: Element, known: Mapping[str, Callable[[str], Any]]) -> dict[str, Any]:
    return {
        name: known[name](field.text or "") for field in part if (name := _name(field)) in known
    }


def _name(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _is_true(text: str) -> bool:
    return text == "true"


_OBJECT: dict[str, Callable[[str], Any]] = {
    "Key": str,
    "LastModified": datetime.fromisoformat,
    "ETag": str,
    "Size": int,
    "StorageClass": str,
}
_LISTING: dict[str, Callable[[str], Any]] = {
    "Name": str,
    "Prefix": str,
    "StartAfter": str,
    "Delimiter": str,
    "EncodingType": str,
    "ContinuationToken": str,
    "NextContinuationToken": str,
    "MaxKeys": int,
    "KeyCount": int,
    "IsTruncated": _is_true,
}
_DELETED: dict[str, Callable[[str], Any]] = {
    "Key": str,
    "VersionId": str,
    "DeleteMarker": _is_true,
    "DeleteMarkerVersionId": str,
    "Code": str,
    "Message": str,
}
