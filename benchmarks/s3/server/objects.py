"""Objects: buckets in memory, with S3's conditions. Pure."""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right, insort

import attrs


@attrs.frozen
class Stored:
    """One version of an object."""

    body: bytes
    modified_s: float
    etag: str

    @classmethod
    def of(cls, body: bytes, modified_s: float) -> Stored:
        """Equal bodies have equal ETags, as on S3."""
        return cls(body, modified_s, f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"')


@attrs.frozen
class Refused(Exception):
    """S3's answer to what it does not do: status, code, and words."""

    status: int
    code: str
    text: str


_UNMET = Refused(412, "PreconditionFailed", "At least one of the pre-conditions did not hold")
_ABSENT = Refused(404, "NoSuchKey", "The specified key does not exist.")


class Objects:
    """What one bucket holds, its keys in their order."""

    def __init__(self) -> None:
        self._stored: dict[str, Stored] = {}
        self._keys: list[str] = []

    def put(self, key: str, stored: Stored, *, if_match: str | None, is_new: bool) -> None:
        """Write an object. Raises `Refused` when a condition does not hold."""
        there = self._stored.get(key)
        if is_new and there is not None:
            raise _UNMET
        if if_match is not None:
            if there is None:
                raise _ABSENT
            if there.etag != if_match:
                raise _UNMET
        if there is None:
            insort(self._keys, key)
        self._stored[key] = stored

    def get(self, key: str) -> Stored:
        """Read an object. Raises `Refused` when there is none."""
        there = self._stored.get(key)
        if there is None:
            raise _ABSENT
        return there

    def remove(self, key: str) -> None:
        """Remove an object, if it is there."""
        if self._stored.pop(key, None) is not None:
            del self._keys[bisect_left(self._keys, key)]

    def list(
        self, prefix: str, after: str, max_count: int
    ) -> tuple[list[tuple[str, Stored]], bool]:
        """Objects in the order of their keys, and whether there are more."""
        start = max(bisect_left(self._keys, prefix), bisect_right(self._keys, after))
        chosen = [
            key for key in self._keys[start : start + max_count + 1] if key.startswith(prefix)
        ]
        page = chosen[:max_count]
        return [(key, self._stored[key]) for key in page], len(chosen) > max_count
