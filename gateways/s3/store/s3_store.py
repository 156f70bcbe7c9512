"""The store on S3: performs requests through an SDK and says in plain values what came of them.

| S3 says                                         | reply                                          |
|-------------------------------------------------|------------------------------------------------|
| 200                                             | `WrittenObject`, `FoundObject`,                |
|                                                 | `RemovedObject`, `Page`                        |
| 304                                             | `Same`                                         |
| 404 of a key                                    | `Missing`; of an If-Match `ConditionFailed`    |
| 412                                             | `ConditionFailed`                              |
| 409 (ConditionalRequestConflict)                | `WriteConflict`                                |
| nothing, 5xx, throttling, too late              | `Unknown`                                      |
| denied, no bucket, expired credentials and such | raised: nothing that trying again mends        |

The SDK tries again by itself, and its second try may find what its first one wrote. It says how
often it tried, which makes a refusal, or a conflict, one that `may_be_ours`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any, Final

import attrs

from pump.clock import Clock
from pump.errors import (
    AccessDenied,
    ConfigurationError,
    ConnectionFailed,
    GatewayError,
    PumpError,
    Throttled,
)

from ..._aws.errors import (
    Meaning,
    ObjectNotFound,
    RequestRefused,
    meaning_of,
    metadata_of,
    permission_for,
    plain,
)
from ..._aws.sdk_transport import Reply as SdkReply, Transport
from .objects import (
    ConditionFailed,
    FoundObject,
    Get,
    List,
    ListedObject,
    Missing,
    Page,
    Put,
    Remove,
    RemovedObject,
    Reply,
    Request,
    Same,
    ServerTime,
    Steps,
    Unknown,
    WriteConflict,
    WrittenObject,
)

_CONDITION_FAILED = {"PreconditionFailed", "412"}
_CONFLICT = {"ConditionalRequestConflict", "OperationAborted", "409"}
_NOT_MODIFIED = {"NotModified", "304"}


@attrs.frozen(kw_only=True)
class Bucket:
    """Where the objects are, and how long one request may take, with all its tries."""

    name: str
    patience_s: float = 20.0


class S3Store:
    """An `ObjectStore` in a bucket. Every reply with a date feeds `time`, an error's too.

    `counts` are requests by what they are (put, get, list, remove; a HEAD costs what a GET does),
    with the SDK's own repetitions; one that was never answered counts once.
    """

    def __init__(
        self, transport: Transport, bucket: Bucket, *, time: ServerTime, clock: Clock
    ) -> None:
        self._transport = transport
        self._bucket = bucket
        self._time = time
        self._clock = clock
        self._date_s = DateReader()
        self.counts: Counter[str] = Counter()

    async def perform(self, request: Request) -> Reply:
        try:
            match request:
                case Put():
                    return await self._put(request)
                case Get():
                    return await self._get(request)
                case Remove():
                    return await self._remove(request)
                case List():
                    return await self._list(request)
        except (ConnectionFailed, Throttled) as fault:
            return Unknown(fault)

    async def _put(self, request: Put) -> WrittenObject | ConditionFailed | WriteConflict:
        condition: dict[str, str] = {}
        if request.is_new:
            condition["IfNoneMatch"] = "*"
        elif request.if_match is not None:
            condition["IfMatch"] = request.if_match
        asked = {"Key": request.key, "Body": request.body, **condition}
        try:
            reply = await self._call("put", "put_object", asked)
        except (RequestRefused, ObjectNotFound) as fault:
            if condition:
                return _unwritten(fault)
            raise
        return WrittenObject(_etag(reply, request.key))

    async def _get(self, request: Get) -> FoundObject | Missing | Same:
        asked = {"Key": request.key}
        if request.unless is not None:
            asked["IfNoneMatch"] = request.unless
        operation = "get_object" if request.has_body else "head_object"
        try:
            reply = await self._call("get", operation, asked)
        except ObjectNotFound:
            return Missing()
        except RequestRefused as fault:
            if fault.code in _NOT_MODIFIED:
                return Same()
            raise
        etag = _etag(reply, request.key)
        if request.unless is not None and etag == request.unless:
            # A store that ignores the condition of a read only sends more.
            return Same()
        if not request.has_body:
            return FoundObject(etag, size=int(reply.get("ContentLength", 0)))
        body = bytes(reply["Body"])
        return FoundObject(etag, body, len(body))

    async def _remove(self, request: Remove) -> RemovedObject | Unknown:
        keys = list(request.keys)
        if len(keys) == 1:
            # S3 itself does not mind when there is none; some stores say so.
            with suppress(ObjectNotFound):
                await self._call("remove", "delete_object", {"Key": keys[0]})
            return RemovedObject()
        for first in range(0, len(keys), MAX_KEYS):
            chunk = keys[first : first + MAX_KEYS]
            wanted = {"Objects": [{"Key": key} for key in chunk], "Quiet": True}
            reply = await self._call("remove", "delete_objects", {"Delete": wanted})
            fault = fault_in(reply, bucket=self._bucket.name)
            if fault is not None:
                return Unknown(fault)
        return RemovedObject()

    async def _list(self, request: List) -> Page:
        asked: dict[str, Any] = {"Prefix": request.prefix, "MaxKeys": request.max_count}
        if request.after:
            asked["StartAfter"] = request.after
        reply = await self._call("list", "list_objects_v2", asked)
        entries = [_entry(line) for line in reply.get("Contents", ())]
        return Page(entries, is_last=not reply.get("IsTruncated", False))

    async def _call(self, kind: str, operation: str, asked: Mapping[str, Any]) -> SdkReply:
        """One operation; what is known of its repetitions and of the time is taken down."""
        bucket = self._bucket
        target = f"s3://{bucket.name}/{asked.get('Key') or asked.get('Prefix') or ''}"
        # Before the first try, whichever of them is answered: that only widens the bounds.
        sent_s = self._clock.now_s()
        try:
            async with self._clock.timeout(bucket.patience_s):
                reply = await self._transport.call(
                    "s3", operation, {"Bucket": bucket.name, **asked}, target=target
                )
        except TimeoutError:
            self.counts[kind] += 1
            detail = f"no answer to {operation} within {bucket.patience_s:g} s"
            raise ConnectionFailed(target, detail) from None
        except PumpError as fault:
            self._note(kind, metadata_of(fault), sent_s)
            raise
        metadata = reply.get("ResponseMetadata") or {}
        self._note(kind, metadata, sent_s)
        if not _is_whole(metadata):
            raise ConnectionFailed(target, "its answer broke off")
        return reply

    def _note(self, kind: str, metadata: Mapping[str, Any], sent_s: float) -> None:
        self.counts[kind] += 1 + _retry_count(metadata)
        date_s = self._date_s(metadata.get("HTTPHeaders") or {})
        if date_s is not None:
            self._time.observe(date_s, sent_s=sent_s, received_s=self._clock.now_s())


def _unwritten(fault: RequestRefused | ObjectNotFound) -> ConditionFailed | WriteConflict:
    may_be_ours = _retry_count(metadata_of(fault)) > 0
    if isinstance(fault, RequestRefused):
        if fault.code in _CONFLICT:
            return WriteConflict(may_be_ours)
        if fault.code not in _CONDITION_FAILED:
            raise fault
    return ConditionFailed(may_be_ours)


def _is_whole(metadata: Mapping[str, Any]) -> bool:
    """Whether an answer's head has come to its end.

    boto3 takes what has come when a connection breaks within the head, and reads no body then: a
    listing without keys, a lease that is empty.
    """
    headers = metadata.get("HTTPHeaders") or {}
    has_end = "content-length" in headers or "transfer-encoding" in headers
    return has_end or metadata.get("HTTPStatusCode") != 200


def _etag(reply: SdkReply, key: str) -> str:
    etag = str(reply.get("ETag", ""))
    if len(etag) < 3 or etag[0] != '"' or etag[-1] != '"':
        # Without it no write can name this version; as above, the answer may have broken off.
        raise ConnectionFailed(key, f"its answer has no whole ETag ({etag!r})")
    return etag


def _retry_count(metadata: Mapping[str, Any]) -> int:
    return int(metadata.get("RetryAttempts") or 0)


def _entry(line: Mapping[str, Any]) -> ListedObject:
    return ListedObject(
        str(line["Key"]),
        str(line.get("ETag", "")),
        int(line.get("Size", 0)),
        float(line["LastModified"].timestamp()),
    )


# Dates: the `Date` of a reply in seconds.


class DateReader:
    """Reads the dates of replies; many carry the same second, which is read once."""

    def __init__(self) -> None:
        self._text = ""
        self._date_s: float | None = None

    def __call__(self, headers: Mapping[str, str]) -> float | None:
        """Unix time of a reply, None when it does not say."""
        text = headers.get("date", "")
        if text != self._text:
            self._text, self._date_s = text, _parse(text)
        return self._date_s


def _parse(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except ValueError:
        return None


# Removals: what S3 says of many objects that were to be removed in one request. Pure.

MAX_KEYS: Final = 1000
"""How many objects S3 removes in one request."""
_ALL_RIGHT = (Meaning.OBJECT_MISSING,)


def fault_in(reply: Mapping[str, Any], *, bucket: str) -> GatewayError | None:
    """The first reason why an object may still be there; None when all are gone.

    A whole request succeeds although parts of it failed. `AccessDenied` is raised: that is for an
    operator.
    """
    for error in reply.get("Errors") or ():
        code = str(error.get("Code", ""))
        meaning = meaning_of(code, 500)
        target = f"s3://{bucket}/{error.get('Key', '')}"
        if meaning is Meaning.DENIED:
            raise AccessDenied(target, permission_for("s3", "delete_objects"))
        if meaning not in _ALL_RIGHT:
            return ConnectionFailed(target, f"it was not removed ({plain(code)})")
    return None


# Probe: finds out whether a store keeps what the protocols stand on, before any message does.
#
# A store that takes a conditional write and ignores the condition would give one message to two
# consumers, and never say so. Asked for, in seven requests:
#
# | request                               | must be      |
# |---------------------------------------|--------------|
# | write a new object                    | written      |
# | write it anew, If-None-Match: *       | refused      |
# | list it                               | listed       |
# | write it, If-Match of another version | refused      |
# | write it, If-Match of this version    | written      |
# | write another, If-Match, never made   | refused      |
# | remove it                             | removed      |

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
    """The remedy to name for such a store."""
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
            case WrittenObject(etag):
                return etag
            case ConditionFailed(may_be_ours=may_be_ours):
                return (yield from _ours(request)) if is_doubtful or may_be_ours else None
            case Unknown(error):
                raise error
            case _:
                assert isinstance(reply, WriteConflict)
                is_doubtful = is_doubtful or reply.may_be_ours
    raise ConnectionFailed(request.key, f"it was busy {_MAX_TRIES} times")


def _ours(request: Put) -> Steps[str | None]:
    """The ETag if what is there is what we wrote: the SDK asked twice, and was refused once."""
    reply = yield from _read(Get(request.key))
    return reply.etag if isinstance(reply, FoundObject) and reply.body == request.body else None


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
