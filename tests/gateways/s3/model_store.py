"""A model of S3 in memory: conditions, listings and dates as AWS documents them, and no faults."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from math import floor

import attrs

from gateways.s3.store.objects import (
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
    WriteConflict,
    WrittenObject,
)


@attrs.frozen
class Stored:
    body: bytes
    modified_s: float

    @property
    def etag(self) -> str:
        """Equal bodies have equal ETags, as on S3."""
        return f'"{hashlib.md5(self.body, usedforsecurity=False).hexdigest()}"'


class ModelS3:
    """The objects of one bucket. `server_s` is its clock."""

    def __init__(self, server_s: Callable[[], float]) -> None:
        self.server_s = server_s
        self.objects: dict[str, Stored] = {}
        self.counts: Counter[str] = Counter()
        """Requests by what they are."""

    @property
    def date_s(self) -> float:
        """What the `Date` of a reply says: whole seconds."""
        return float(floor(self.server_s()))

    def apply(self, request: Request) -> Reply:
        """Perform a request at once and wholly."""
        self.counts[type(request).__name__.lower()] += 1
        match request:
            case Put():
                return self._put(request)
            case Get():
                return self._get(request)
            case Remove():
                for key in request.keys:
                    self.objects.pop(key, None)
                return RemovedObject()
            case List():
                return self._list(request)

    def _put(self, request: Put) -> WrittenObject | ConditionFailed | WriteConflict:
        there = self.objects.get(request.key)
        if request.is_new and there is not None:
            return ConditionFailed()
        if request.if_match is not None and (there is None or there.etag != request.if_match):
            return ConditionFailed()
        stored = Stored(bytes(request.body), self.date_s)
        self.objects[request.key] = stored
        return WrittenObject(stored.etag)

    def _get(self, request: Get) -> FoundObject | Missing | Same:
        there = self.objects.get(request.key)
        if there is None:
            return Missing()
        if request.unless == there.etag:
            return Same()
        body = there.body if request.has_body else b""
        return FoundObject(there.etag, body, len(there.body))

    def _list(self, request: List) -> Page:
        keys = sorted(
            key for key in self.objects if key.startswith(request.prefix) and key > request.after
        )
        chosen = keys[: request.max_count]
        entries = [
            ListedObject(key, there.etag, len(there.body), there.modified_s)
            for key in chosen
            for there in [self.objects[key]]
        ]
        return Page(entries, is_last=len(chosen) == len(keys))


class ModelStore:
    """An `ObjectStore` on a model, for one process: it feeds that process's `ServerTime`."""

    def __init__(self, s3: ModelS3, time: ServerTime, local_s: Callable[[], float]) -> None:
        self.s3 = s3
        self._time = time
        self._local_s = local_s

    async def perform(self, request: Request) -> Reply:
        sent_s = self._local_s()
        reply = self.s3.apply(request)
        self._time.observe(self.s3.date_s, sent_s=sent_s, received_s=self._local_s())
        return reply
