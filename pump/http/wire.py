"""Wire: one HTTP/1.1 request as bytes, and its answer. Pure.

Only what probes, Prometheus and curl send. Whatever has a second meaning somewhere (a header that
counts here and comes twice, a folded line, a bare line feed, a coded body) is refused rather than
guessed at, and always with a 4xx: the sender is at fault, and a 5xx would tell a probe that the
app is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import attrs

MAX_HEAD_BYTES: Final = 8 * 1024
MAX_BODY_BYTES: Final = 4 * 1024
_MAX_FIELDS: Final = 64
_METHODS: Final = ("GET", "HEAD", "POST")
_LINE: Final = re.compile(rb"([!-~]+) ([!-~]+) (HTTP/[0-9]\.[0-9])")
_TARGET: Final = re.compile(r"(/[\w\-.~%!$&'()*+,;=:@/]*)(\?[\w\-.~%!$&'()*+,;=:@/?]*)?", re.ASCII)
_FIELD: Final = re.compile(rb"([\w!#$%&'*+\-.^`|~]+):[ \t]*([ -~\t]*)", re.ASCII)
_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
# Of others, such as those that proxies add, the last one is kept, and not read.
_ONCE: Final = frozenset({"host", "content-length", "content-type", "origin", "sec-fetch-site"})
_LENGTH: Final = re.compile(r"[0-9]{1,6}")
JSON: Final = "application/json"


class Refused(Exception):
    """A request that is not served, with the status and the words that answer it."""

    def __init__(self, status: HTTPStatus, why: str, headers: Mapping[str, str] | None = None):
        super().__init__(why)
        self.status = status
        self.why = why
        self.headers = dict(headers or {})


@attrs.frozen(kw_only=True)
class Request:
    """What was asked for."""

    method: str
    path: tuple[str, ...]
    """The segments, decoded: `/subscriptions/a%2Fb/pause` has `a/b` for its second."""
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """By lower-case name."""
    body: bytes = attrs.field(default=b"", repr=False)

    @property
    def body_length(self) -> int:
        """How long the body is to be."""
        return int(self.headers.get("content-length", "0"))

    def with_body(self, body: bytes) -> Request:
        """The whole of it."""
        return attrs.evolve(self, body=body)


@attrs.frozen(kw_only=True)
class Answer:
    """A status and what there is to say."""

    status: HTTPStatus = HTTPStatus.OK
    body: bytes = attrs.field(default=b"", repr=False)
    content_type: str = JSON
    headers: Mapping[str, str] = attrs.field(factory=dict)

    @classmethod
    def of(cls, value: object, status: HTTPStatus = HTTPStatus.OK) -> Answer:
        """A JSON document."""
        # In ASCII: a name may hold what UTF-8 cannot.
        text = json.dumps(value, indent=2)
        return cls(status=status, body=f"{text}\n".encode())

    def document(self) -> dict[str, Any]:
        """The JSON object that is the body."""
        found: dict[str, Any] = json.loads(self.body)
        return found

    @classmethod
    def refusing(cls, refused: Refused) -> Answer:
        """Why not."""
        answer = cls.of({"error": refused.why}, refused.status)
        return attrs.evolve(answer, headers=refused.headers)

    def as_bytes(self, *, with_body: bool = True) -> bytes:
        """The answer as it is sent; the connection ends after it."""
        fields = {
            "Content-Type": self.content_type,
            "Content-Length": str(len(self.body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Connection": "close",
            **self.headers,
        }
        lines = [f"HTTP/1.1 {self.status.value} {self.status.phrase}"]
        lines += [f"{name}: {value}" for name, value in fields.items()]
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        return head + self.body if with_body else head


def refuse_changes(request: Request) -> None:
    """Raise `Refused` unless the request only reads."""
    if request.method == "POST":
        raise Refused(
            HTTPStatus.METHOD_NOT_ALLOWED,
            "nothing can be changed here; control has an address of its own",
            {"Allow": "GET, HEAD"},
        )


def parse_head(head: bytes) -> Request:
    """The request that a head, with its closing blank line, begins; `Refused` when it is none."""
    if len(head) > MAX_HEAD_BYTES:
        raise Refused(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a head has {MAX_HEAD_BYTES} bytes at most"
        )
    line, *fields = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    found = _LINE.fullmatch(line)
    if found is None:
        raise _bad("the request line is not METHOD /path HTTP/1.1")
    method, target, version = (part.decode("ascii") for part in found.groups())
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        raise _bad(f"{version} is not spoken here; use HTTP/1.1")
    if method not in _METHODS:
        allowed = ", ".join(_METHODS)
        raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, f"use {allowed}", {"Allow": allowed})
    request = Request(method=method, path=_segments(target), headers=_fields(fields))
    if "host" not in request.headers and version == "HTTP/1.1":
        raise _bad("there is no Host")
    _check_framing(request)
    return request


def _segments(target: str) -> tuple[str, ...]:
    found = _TARGET.fullmatch(target)
    if found is None or _ESCAPE.search(target):
        raise _bad("the request's target is not a path")
    try:
        return tuple(unquote_to_bytes(each).decode() for each in found[1].split("/")[1:])
    except UnicodeDecodeError:
        raise _bad("the path is not UTF-8") from None


def _fields(lines: list[bytes]) -> dict[str, str]:
    if len(lines) > _MAX_FIELDS:
        raise Refused(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"there are over {_MAX_FIELDS} headers"
        )
    fields: dict[str, str] = {}
    for line in lines:
        found = _FIELD.fullmatch(line)
        if found is None:
            raise _bad("a header is not `Name: value`, or not plain ASCII")
        name = found[1].decode("ascii").lower()
        if name in fields and name in _ONCE:
            raise _bad(f"the header {name} comes twice")
        fields[name] = found[2].decode("ascii").strip(" \t")
    return fields


def _check_framing(request: Request) -> None:
    headers = request.headers
    if "transfer-encoding" in headers:
        raise Refused(HTTPStatus.LENGTH_REQUIRED, "send a body with its Content-Length")
    if "expect" in headers:
        raise Refused(HTTPStatus.EXPECTATION_FAILED, "send the body at once, without Expect")
    length = headers.get("content-length")
    if length is None:
        return
    if not (length.isascii() and length.isdecimal()):
        raise _bad("Content-Length is not a number")
    if not _LENGTH.fullmatch(length) or int(length) > MAX_BODY_BYTES:
        raise Refused(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has {MAX_BODY_BYTES} bytes at most"
        )
    if int(length) and request.method != "POST":
        raise _bad(f"a {request.method} has no body")


def _bad(why: str) -> Refused:
    return Refused(HTTPStatus.BAD_REQUEST, why)
