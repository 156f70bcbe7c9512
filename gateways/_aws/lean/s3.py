"""REST, as S3 speaks it: where requests go, what vouches for them, and what the replies say."""

from __future__ import annotations

import hashlib
import re
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote, unquote_plus, urlunsplit
from xml.etree.ElementTree import Element, ParseError, fromstring
from xml.sax.saxutils import escape

import attrs
from botocore.exceptions import FlexibleChecksumError
from yarl import URL

from ..sdk_transport import Client, Reply, Request
from .http_session import Endpoint, HttpReply, Planned, endpoint_of
from .signing import EMPTY_HASH, UNSIGNED_PAYLOAD, Signable

# The requests to S3 that are made here: six operations, with the fields that gateways use. Pure.
#
# Whatever else S3 can do, and with whatever other fields, the SDK does.

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


# The XML of S3: a list of keys, a request to delete some, and what came of it. Pure.

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


_METADATA = "x-amz-meta-"
_READ_DOCUMENT = {"ListObjectsV2": read_listing, "DeleteObjects": read_deletion}
_Reader = tuple[str, Callable[[str], Any]]


class RestS3:
    """Requests to buckets, each at the endpoint that botocore's rules give for it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._endpoints: dict[str, Endpoint | None] = {}
        config = client.meta.config
        self._sums_always = _is_always(config, "request_checksum_calculation")
        self._asks_sums = _is_always(config, "response_checksum_validation")
        self._readers = {
            known.name: _readers_of(client, known.name) for known in OPERATIONS.values()
        }

    def plan(self, operation: str, request: Request) -> Planned | None:
        known = OPERATIONS.get(operation)
        if known is None or not is_plain(known, request):
            return None
        endpoint = self._endpoint_of(request["Bucket"])
        if endpoint is None:
            return None
        base, body = endpoint.base, body_of(known, request)
        path = path_of(known, request, base=base.path)
        query = query_of(known, request)
        headers, payload_hash = self._vouch(known.name, body, endpoint)
        headers |= headers_of(known, request)
        headers |= {"host": base.netloc, "x-amz-content-sha256": payload_hash}
        return Planned(
            operation=known.name,
            url=URL(urlunsplit((base.scheme, base.netloc, path, query, "")), encoded=True),
            signable=Signable(
                method=known.method,
                path=path,
                query=query,
                headers=headers,
                payload_hash=payload_hash,
            ),
            signer=endpoint.signer,
            body=body,
            is_streamed=known.name == "GetObject",
        )

    def read(self, planned: Planned, answer: HttpReply) -> Reply | None:
        operation, body = planned.operation, answer.body
        if operation == "GetObject":
            if self._asks_sums:
                check(body, answer.headers)
            return {**self._of_headers(operation, answer), "Body": body}
        reply = self._of_headers(operation, answer)
        read = _READ_DOCUMENT.get(operation)
        if read is None and not body:
            return reply
        root = root_of(body)
        if root is None:
            return None
        return reply if read is None else {**reply, **read(root)}

    def is_elsewhere(self, planned: Planned, refusal: Mapping[str, Any]) -> bool:
        """A bucket of another region than the settings': botocore finds and remembers which."""
        error = refusal.get("Error", {})
        code, status = error.get("Code"), refusal["ResponseMetadata"]["HTTPStatusCode"]
        return (
            status in (301, 302, 307)
            or code in ("PermanentRedirect", "IllegalLocationConstraintException")
            or (code == "AuthorizationHeaderMalformed" and "Region" in error)
            # A HEAD has no body to say more.
            or (code == "400" and planned.operation == "HeadObject")
        )

    def leave_to_the_sdk(self, request: Request) -> None:
        self._endpoints[request["Bucket"]] = None

    def _endpoint_of(self, bucket: str) -> Endpoint | None:
        if bucket not in self._endpoints:
            self._endpoints[bucket] = endpoint_of(self._client, "GetObject", {"Bucket": bucket})
        return self._endpoints[bucket]

    def _vouch(self, operation: str, body: bytes, endpoint: Endpoint) -> tuple[dict[str, str], str]:
        """What says that the body arrived whole: a checksum, a signed hash, or both."""
        if operation == "GetObject" and self._asks_sums:
            return {"x-amz-checksum-mode": "ENABLED"}, EMPTY_HASH
        is_put = operation == "PutObject"
        if operation != "DeleteObjects" and not (is_put and self._sums_always):
            return {}, sha256(body).hexdigest() if is_put else EMPTY_HASH
        headers = {CRC32_HEADER: crc32(body), "x-amz-sdk-checksum-algorithm": "CRC32"}
        # As botocore: TLS and a checksum are enough for what may be large.
        is_vouched_for = is_put and endpoint.is_tls
        return headers, UNSIGNED_PAYLOAD if is_vouched_for else sha256(body).hexdigest()

    def _of_headers(self, operation: str, answer: HttpReply) -> Reply:
        readers = self._readers[operation]
        reply: Reply = {}
        for name, text in answer.headers.items():
            if name in readers:
                field, read = readers[name]
                reply[field] = read(text)
        if operation in ("GetObject", "HeadObject"):
            reply["Metadata"] = {
                name.removeprefix(_METADATA): text
                for name, text in answer.headers.items()
                if name.startswith(_METADATA)
            }
        return reply


def _is_always(config: Any, name: str) -> bool:
    # A botocore that has no such setting knows checksums only where S3 requires them.
    return bool(getattr(config, name, None) == "when_supported")


def _readers_of(client: Client, operation: str) -> dict[str, _Reader]:
    """What a reply has in its headers, by the service's model: the field and how it is read."""
    readers: dict[str, _Reader] = {}
    output = client.meta.service_model.operation_model(operation).output_shape
    for field, shape in (output.members if output is not None else {}).items():
        read = parsedate_to_datetime if field == "LastModified" else _READ.get(shape.type_name)
        if shape.serialization.get("location") == "header" and read is not None:
            readers[shape.serialization["name"].lower()] = (field, read)
    return readers


# Other dates come in other forms, and no gateway asks for them.
_READ: dict[str, Callable[[str], Any]] = {
    "string": str,
    "integer": int,
    "long": int,
    "boolean": lambda text: text == "true",
}


# Checksums of objects: CRC32 on the way out, whatever S3 names on the way in. Pure.

CRC32_HEADER = "x-amz-checksum-crc32"


def crc32(body: bytes) -> str:
    """As S3 writes it: big-endian, in base64."""
    return b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()


def check(body: bytes, headers: Mapping[str, str]) -> None:
    """Raise `FlexibleChecksumError` when the body is not the one its reply vouches for.

    As in botocore: the first kind that it has without its native library. The checksum of an
    object in parts says nothing of the whole; it ends with their number.
    """
    for name, digest in _KINDS.items():
        expected = headers.get(f"x-amz-checksum-{name}")
        if expected is None or "-" in expected:
            continue
        actual = digest(body)
        if actual != expected:
            raise FlexibleChecksumError(
                error_msg=f"Expected {name} checksum {expected}, found {actual} instead"
            )
        return


def _hashed(name: str) -> Callable[[bytes], str]:
    return lambda body: b64encode(hashlib.new(name, body, usedforsecurity=False).digest()).decode()


_KINDS: dict[str, Callable[[bytes], str]] = {
    "crc32": crc32,
    "sha1": _hashed("sha1"),
    "sha256": _hashed("sha256"),
}
