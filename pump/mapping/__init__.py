"""Mapping: requests become messages, and messages requests, by content type.

`Mapper` is the door, and `mapper` also holds a codec for each content type. `converter` picks the
library that builds an object, `cattrs_reader` builds those that msgspec would not build faithfully,
and `faults` says what was wrong with a body.
"""

from __future__ import annotations

from ..headers import MSGPACK, OCTETS, TEXT
from ..message import JSON
from .mapper import Codec, JsonCodec, Mapper, MsgpackCodec, OctetsCodec, TextCodec, type_name_of

__all__ = [
    "JSON",
    "MSGPACK",
    "OCTETS",
    "TEXT",
    "Codec",
    "JsonCodec",
    "Mapper",
    "MsgpackCodec",
    "OctetsCodec",
    "TextCodec",
    "type_name_of",
]
