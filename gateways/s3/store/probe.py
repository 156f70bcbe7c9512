"""Probe: finds out whether a store keeps what the protocols stand on, before any message does.

A store that takes a conditional write and ignores the condition would give one message to two
consumers, and never say so. Asked for, in seven requests:

| request                               | must be      |
|---------------------------------------|--------------|
| write a new object                    | written      |
| write it anew, If-None-Match: *       | refused      |
| list it                               | listed       |
| write it, If-Match of another version | refused      |
| write it, If-Match of this version    | written      |
| write another, If-Match, never made   | refused      |
| remove it                             | removed      |
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from pump.errors import ConfigurationError, ConnectionFailed

from .objects import Busy, Found, Get, List, Put, Refused, Remove, Reply, Steps, Unknown, Written

_MAX_TRIES = 5
_NO_VERSION = f'"{"0" * 32}"'


def probe(root: str, new_id: Callable[[], str]) -> Steps[str]:
    """What the store does not do, in words; empty when it does all. Leaves nothing behind.

    Raises `ConnectionFailed` and the like when it cannot be asked.
    """
    key, other = f"{root}first", f"{root}never"
    trouble: str = yield from _trouble(key, other, root, new_id)
    yield Remove([key, other])
    return trouble


def _trouble(key: str, other: str, root: str, new_id: Callable[[], str]) -> Steps[str]:
    first = yield from _write(Put(key, _body(new_id), is_new=True))
    if first is None:
        return "it refuses to write an object that is not there"
    if (yield from _write(Put(key, _body(new_id), is_new=True))) is not None:
        return "it ignores If-None-Match: an object that is there was written anew"
    if not (yield from _is_listed(key, root)):
        return "it does not list at once what was written"
    if (yield from _write(Put(key, _body(new_id), if_match=_NO_VERSION))) is not None:
        return "it ignores If-Match: an object was written over another version"
    if (yield from _write(Put(key, _body(new_id), if_match=first))) is None:
        return "it refuses If-Match with the version that is there"
    if (yield from _write(Put(other, _body(new_id), if_match=first))) is not None:
        return "it ignores If-Match of an object that is not there"
    return ""


def refused(bucket: str, trouble: str) -> ConfigurationError:
    """What to tell a person of such a store."""
    return ConfigurationError(
        "S3Settings.bucket",
        bucket,
        f"this store cannot keep queues: {trouble}. Use AWS S3, or a store (or a newer version of "
        f"this one) that honours If-None-Match and If-Match on PUT",
    )


def _write(request: Put) -> Steps[str | None]:
    """The ETag of what was written, None when it was refused."""
    is_doubtful = False
    for _ in range(_MAX_TRIES):
        reply: Reply = yield request
        match reply:
            case Written(etag):
                return etag
            case Refused(may_be_ours=may_be_ours):
                return (yield from _ours(request)) if is_doubtful or may_be_ours else None
            case Unknown(error):
                raise error
            case _:
                assert isinstance(reply, Busy)
                is_doubtful = is_doubtful or reply.may_be_ours
    raise ConnectionFailed(request.key, f"it was busy {_MAX_TRIES} times")


def _ours(request: Put) -> Steps[str | None]:
    """The ETag if what is there is what we wrote: the SDK asked twice, and was refused once."""
    reply = yield from _read(Get(request.key))
    return reply.etag if isinstance(reply, Found) and reply.body == request.body else None


def _is_listed(key: str, root: str) -> Steps[bool]:
    page = yield from _read(List(root))
    return any(entry.key == key for entry in page.entries)


def _read(request: Get | List) -> Generator[Get | List, Any, Any]:
    reply = yield request
    if isinstance(reply, Unknown):
        raise reply.error
    return reply


def _body(new_id: Callable[[], str]) -> bytes:
    return f"Written to see whether conditions hold: {new_id()}".encode()
