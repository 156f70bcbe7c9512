"""Requests as SDKs send them nearly always, read by hand; anything else is aiohttp's to judge.

A reader that refuses nothing can be short, and it can be strict: what it does not know word for
word it does not touch. It answers None for whatever has a second meaning somewhere (a name that
comes twice, a folded or padded line, a coding of the body, a byte that is not plain text), and the
full parser then serves or refuses it. So the two never disagree about where a request ends.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from .limits import HttpLimits

# Beyond these, the full parser looks whether a limit is exceeded.
_MAX_HEAD_BYTES: Final = 16 * 1024
_MAX_FIELDS: Final = 64
_MAX_DIGITS: Final = 9
_PRINTABLE: Final = bytes(range(0x20, 0x7F))
_LINE: Final = re.compile(
    r"POST (/[\w\-.~%!$&'()*+,;=:@/]*)(?:\?([\w\-.~%!$&'()*+,;=:@/?]*))? HTTP/1\.1", re.ASCII
)
_NAME: Final = re.compile(r"[\w!#$%&'*+\-.^`|~]+", re.ASCII)
# They say something about the connection or the form of the body; of them all, only the
# `Connection: keep-alive` that some clients send for good measure is understood here.
_UNUSUAL: Final = frozenset(
    {
        "content-encoding",
        "expect",
        "http2-settings",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_USUAL: Final = (
    "accept",
    "accept-encoding",
    "amz-sdk-invocation-id",
    "amz-sdk-request",
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "host",
    "user-agent",
    "x-amz-content-sha256",
    "x-amz-date",
    "x-amz-security-token",
    "x-amz-target",
    "x-amz-user-agent",
    "x-amzn-query-mode",
    "x-amzn-trace-id",
)


class _Names(dict[str, str]):
    """Lower-case names; a KeyError for what is no name, or not one for this reader.

    Only the usual ones are kept, so that no client can make it grow.
    """

    def __missing__(self, name: str) -> str:
        lower = name.lower()
        if lower in _UNUSUAL or not _NAME.fullmatch(name):
            raise KeyError(name)
        return lower


_NAMES: Final = _Names({name: name for name in _USUAL} | {name.title(): name for name in _USUAL})


class OrdinaryRequest(NamedTuple):
    """A POST with a body of known length; of the body, what has come so far."""

    path: str
    query: str
    headers: dict[str, str]
    """By lower-case name, each of them once."""
    body: bytes
    size: int
    """Of head and body together, once all of it is there."""
    method: str = "POST"

    def __repr__(self) -> str:
        # Neither a body nor a signature belongs in a log.
        return f"OrdinaryRequest({self.path!r}, {self.size} bytes)"


class OrdinaryReader:
    """Reads the first request of a chunk, within limits that are at least the server's."""

    def __init__(self, limits: HttpLimits) -> None:
        self._max_body_bytes = limits.max_body_bytes
        # No line of a head that is shorter than its shortest limit can be over one.
        self._max_head_bytes = min(_MAX_HEAD_BYTES, limits.max_line_bytes, limits.max_header_bytes)

    def read(self, data: bytes) -> OrdinaryRequest | None:
        """The request that `data` begins with, None when it is anything out of the ordinary."""
        end = data.find(b"\r\n\r\n", 0, self._max_head_bytes)
        if end < 0 or not data.startswith(b"POST /"):
            return None
        head = data[: end + 2]
        # Read as Latin-1, which cannot fail; what is not ASCII is not printable here either, and
        # nor is a line end that is not one of HTTP's.
        first, *lines, _ = head.decode("latin-1").split("\r\n")
        if len(head.translate(None, _PRINTABLE)) != 2 * (len(lines) + 1):
            return None
        # Padding is the full parser's to strip: nobody has to ask whether both strip the same.
        if b" \r\n" in head or b":  " in head:
            return None
        target = _LINE.fullmatch(first)
        headers = _read_fields(lines)
        if target is None or headers is None:
            return None
        length = _length_of(headers)
        if length is None or length > self._max_body_bytes:
            return None
        path, query = target.groups("")
        start = end + 4
        return OrdinaryRequest(path, query, headers, data[start : start + length], start + length)


def _read_fields(lines: list[str]) -> dict[str, str] | None:
    headers: dict[str, str] = {}
    try:
        for line in lines:
            name, value = line.split(": ", 1)
            headers[_NAMES[name]] = value
    except (KeyError, ValueError):
        return None
    return headers if len(headers) == len(lines) <= _MAX_FIELDS else None


def _length_of(headers: dict[str, str]) -> int | None:
    """What Content-Length says, None unless everything about the framing is as usual."""
    length = headers.get("content-length", "")
    if not length.isdecimal() or len(length) > _MAX_DIGITS or "host" not in headers:
        return None
    if headers.get("connection", "keep-alive").lower() != "keep-alive":
        return None
    return int(length)
