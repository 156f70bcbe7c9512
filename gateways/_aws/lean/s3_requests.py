"""The requests to S3 that are made here: six operations, with the fields that gateways use. Pure.

Whatever else S3 can do, and with whatever other fields, the SDK does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

import attrs

from ..transport import Request
from .s3_xml import deletion

_IS_BUCKET = re.compile(r"[a-zA-Z0-9.\-_]{1,255}").fullmatch
_CONDITIONS = {"IfMatch": "if-match", "IfNoneMatch": "if-none-match"}
_QUERY = {
    "ContinuationToken": "continuation-token",
    "MaxKeys": "max-keys",
    "Prefix": "prefix",
    "StartAfter": "start-after",
}
_TYPES: Mapping[str, type] = {"Body": bytes, "Delete": dict, "MaxKeys": int}


@attrs.frozen
class Operation:
    """One operation, and the fields that a request may have."""

    name: str
    method: str
    headers: Mapping[str, str]
    """Fields that are sent as headers, and which."""
    fields: frozenset[str]

    @property
    def has_key(self) -> bool:
        """Whether it is about one object, and not about its bucket."""
        return "Key" in self.fields


def _operation(
    name: str, method: str, *fields: str, headers: Mapping[str, str] | None = None
) -> Operation:
    sent = headers or {}
    return Operation(name, method, sent, frozenset({"Bucket", *fields, *sent}))


OPERATIONS: Final[Mapping[str, Operation]] = {
    "put_object": _operation(
        "PutObject",
        "PUT",
        "Key",
        "Body",
        headers={**_CONDITIONS, "ContentType": "content-type"},
    ),
    "get_object": _operation("GetObject", "GET", "Key", headers=_CONDITIONS),
    "head_object": _operation("HeadObject", "HEAD", "Key", headers=_CONDITIONS),
    "delete_object": _operation("DeleteObject", "DELETE", "Key"),
    "delete_objects": _operation("DeleteObjects", "POST", "Delete"),
    "list_objects_v2": _operation("ListObjectsV2", "GET", *_QUERY),
}


def is_plain(operation: Operation, request: Request) -> bool:
    """Whether nothing in a request is for the SDK to understand, or to refuse."""
    return (
        request.keys() <= operation.fields
        and all(isinstance(value, _TYPES.get(name, str)) for name, value in request.items())
        and _IS_BUCKET(request.get("Bucket", "")) is not None
        and (not operation.has_key or bool(request.get("Key")))
        and _is_plain_deletion(request.get("Delete"))
    )


def path_of(operation: Operation, request: Request, *, base: str) -> str:
    """The path below the bucket's own; a key's dots and slashes stay as they are."""
    if not operation.has_key:
        return base or "/"
    return f"{base.removesuffix('/')}/{quote(request['Key'], safe='/~')}"


def query_of(operation: Operation, request: Request) -> str:
    """The query, encoded as it is signed, though not yet in that order."""
    if operation.name == "DeleteObjects":
        return "delete"
    if operation.name != "ListObjectsV2":
        return ""
    asked = {_QUERY[name]: str(value) for name, value in request.items() if name in _QUERY}
    # XML cannot hold every key as it is.
    asked |= {"list-type": "2", "encoding-type": "url"}
    return "&".join([f"{name}={quote(value, safe='-_.~')}" for name, value in asked.items()])


def headers_of(operation: Operation, request: Request) -> dict[str, str]:
    """The fields of a request that are headers."""
    sent = operation.headers
    return {sent[name]: value for name, value in request.items() if name in sent}


def body_of(operation: Operation, request: Request) -> bytes:
    """What is put, or which keys are to be deleted."""
    if operation.name == "PutObject":
        body: bytes = request.get("Body", b"")
        return body
    if operation.name != "DeleteObjects":
        return b""
    wanted = request["Delete"]
    keys = [each["Key"] for each in wanted["Objects"]]
    return deletion(keys, is_quiet=bool(wanted.get("Quiet")))


def _is_plain_deletion(wanted: Mapping[str, object] | None) -> bool:
    if wanted is None:
        return True
    objects = wanted.get("Objects")
    return (
        wanted.keys() <= {"Objects", "Quiet"}
        and isinstance(objects, list)
        and all(each.keys() == {"Key"} for each in objects)
    )
