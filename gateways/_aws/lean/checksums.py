"""Checksums of objects: CRC32 on the way out, whatever S3 names on the way in. Pure."""

from __future__ import annotations

import hashlib
import zlib
from base64 import b64encode
from collections.abc import Callable, Mapping

from botocore.exceptions import FlexibleChecksumError

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
