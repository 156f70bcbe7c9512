"""Service: S3's operations on objects in memory, and how often each was asked for."""

from __future__ import annotations

import base64
import re
import time
from collections import Counter
from email.utils import formatdate
from typing import NoReturn
from urllib.parse import parse_qs, unquote
from xml.sax.saxutils import escape, unescape

import attrs

from .objects import Objects, Refused, Stored

_KEYS = re.compile(r"<Key>(.*?)</Key>", re.DOTALL)
_XML = '<?xml version="1.0" encoding="UTF-8"?>\n'
_NAMESPACE = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'


@attrs.frozen(kw_only=True)
class Asked:
    """A request as it came."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes = attrs.field(repr=False)


@attrs.frozen
class Answer:
    """What goes back."""

    status: int = 200
    body: bytes = attrs.field(default=b"", repr=False)
    headers: tuple[tuple[str, str], ...] = ()
    length: int | None = None
    """The length to be named when there is no body: that of a HEAD."""


class Service:
    """S3 for whoever asks: path-style addresses, no signatures checked, every bucket there."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """Requests by what they are billed as: put, list, get, and delete, which is free."""
        self._buckets: dict[str, Objects] = {}

    def perform(self, asked: Asked) -> Answer:
        """Carry out a request at once; a refusal is an answer too."""
        path, _, query = asked.target.partition("?")
        bucket, _, key = unquote(path.lstrip("/")).partition("/")
        objects = self._buckets.setdefault(bucket, Objects())
        try:
            return self._dispatch(objects, key, asked, parse_qs(query, keep_blank_values=True))
        except Refused as no:
            text = f"{_XML}<Error><Code>{no.code}</Code><Message>{no.text}</Message></Error>"
            return Answer(no.status, b"" if asked.method == "HEAD" else text.encode())

    def sizes(self, bucket: str) -> dict[str, int]:
        """What is there, by key; for whoever measures."""
        found, _ = self._buckets.setdefault(bucket, Objects()).list("", "", 10**9)
        return {key: len(there.body) for key, there in found}

    def _dispatch(
        self, objects: Objects, key: str, asked: Asked, query: dict[str, list[str]]
    ) -> Answer:
        match asked.method:
            case "PUT" if key:
                self.counts["put"] += 1
                return self._put(objects, key, asked)
            case "GET" | "HEAD" if key:
                self.counts["get"] += 1
                return _get(objects.get(key), asked)
            case "GET" if "list-type" in query:
                self.counts["list"] += 1
                return _list(objects, query)
            case "DELETE" if key:
                self.counts["delete"] += 1
                objects.remove(key)
                return Answer(204)
            case "POST" if "delete" in query:
                self.counts["delete"] += 1
                return _delete(objects, asked.body)
            case "HEAD" | "PUT":
                return Answer()
        _unknown(asked)

    def _put(self, objects: Objects, key: str, asked: Asked) -> Answer:
        stored = Stored.of(_plain(asked), time.time())
        objects.put(
            key,
            stored,
            if_match=asked.headers.get("if-match"),
            is_new=asked.headers.get("if-none-match") == "*",
        )
        return Answer(headers=(("ETag", stored.etag),))


def _get(there: Stored, asked: Asked) -> Answer:
    facts = (
        ("ETag", there.etag),
        ("Last-Modified", formatdate(there.modified_s, usegmt=True)),
        ("Content-Type", "binary/octet-stream"),
    )
    if asked.headers.get("if-none-match") == there.etag:
        return Answer(304, headers=facts[:1])
    if asked.method == "HEAD":
        return Answer(headers=facts, length=len(there.body))
    return Answer(body=there.body, headers=facts)


def _list(objects: Objects, query: dict[str, list[str]]) -> Answer:
    def asked(name: str, default: str = "") -> str:
        return query.get(name, [default])[0]

    token = asked("continuation-token")
    after = base64.b64decode(token).decode() if token else asked("start-after")
    page, has_more = objects.list(asked("prefix"), after, int(asked("max-keys", "1000")))
    contents = "".join(
        f"<Contents><Key>{escape(key)}</Key><LastModified>{_iso(there.modified_s)}</LastModified>"
        f"<ETag>{escape(there.etag)}</ETag><Size>{len(there.body)}</Size></Contents>"
        for key, there in page
    )
    next_token = base64.b64encode(page[-1][0].encode()).decode() if has_more else ""
    more = f"<NextContinuationToken>{next_token}</NextContinuationToken>" if has_more else ""
    text = (
        f"{_XML}<ListBucketResult {_NAMESPACE}><IsTruncated>{str(has_more).lower()}</IsTruncated>"
        f"<KeyCount>{len(page)}</KeyCount>{more}{contents}</ListBucketResult>"
    )
    return Answer(body=text.encode(), headers=(("Content-Type", "application/xml"),))


def _delete(objects: Objects, body: bytes) -> Answer:
    for key in _KEYS.findall(body.decode()):
        objects.remove(unescape(key))
    return Answer(body=f"{_XML}<DeleteResult {_NAMESPACE}></DeleteResult>".encode())


def _plain(asked: Asked) -> bytes:
    """The body without the chunks that SDKs may wrap it in to append a checksum."""
    if "aws-chunked" not in asked.headers.get("content-encoding", ""):
        return asked.body
    rest, parts = asked.body, []
    while rest:
        line, _, rest = rest.partition(b"\r\n")
        size = int(line.partition(b";")[0], 16)
        if not size:
            break
        parts.append(rest[:size])
        rest = rest[size + 2 :]
    return b"".join(parts)


def _iso(at_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(at_s))


def _unknown(asked: Asked) -> NoReturn:
    text = f"the stand-in does not know {asked.method} {asked.target}"
    raise Refused(501, "NotImplemented", escape(text))
