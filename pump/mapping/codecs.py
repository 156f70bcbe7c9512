"""Codecs: one for each content type, between a body and a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from ..errors import MappingError
from ..headers import MSGPACK, OCTETS, parse_content_type
from ..message import JSON
from .converter import Format, JsonFormat, MsgpackFormat, Read, Write, reader_for, writer_for
from .faults import Refused

_MAX_SHOWN = 100


class Codec(Protocol):
    """Reads and writes bodies of one content type.

    Whatever it raises is taken to mean that the body, or the request, cannot be mapped.
    """

    def encode(self, request: Any) -> bytes:
        """Return the body of a message that carries `request`."""

    def decode(self, body: bytes, request_type: Any) -> Any:
        """Return the request of that type which `body` carries."""


class _ConvertingCodec:
    def __init__(self, make_format: Callable[[], Format]) -> None:
        self._format = make_format()
        self._readers: dict[Any, Read] = {}
        self._writers: dict[type, Write] = {}

    def encode(self, request: Any) -> bytes:
        kind = request.__class__
        write = self._writers.get(kind)
        if write is None:
            write = self._writers[kind] = writer_for(kind, self._format)
        return write(request)

    def decode(self, body: bytes, request_type: Any) -> Any:
        read = self._readers.get(request_type)
        if read is None:
            read = self._readers[request_type] = reader_for(request_type, self._format)
        try:
            return read(body)
        except (msgspec.DecodeError, ValueError):
            mark = self._format.mark
            if not mark or not body.startswith(mark):
                raise
        return read(body[len(mark) :])

    def __reduce__(self) -> tuple[Any, ...]:
        # Readers cannot be pickled; the other process makes its own.
        return type(self), ()


class JsonCodec(_ConvertingCodec):
    """JSON in UTF-8; a byte order mark, which some producers write, is passed over."""

    def __init__(self) -> None:
        super().__init__(JsonFormat)


class MsgpackCodec(_ConvertingCodec):
    """MessagePack: smaller than JSON, and bytes travel as they are."""

    def __init__(self) -> None:
        super().__init__(MsgpackFormat)


class TextCodec:
    """Plain text in UTF-8, for `str` requests only."""

    def encode(self, request: Any) -> bytes:
        if not isinstance(request, str):
            raise Refused(f"plain text carries str, not {type(request).__qualname__}")
        return request.encode()

    def decode(self, body: bytes, request_type: Any) -> Any:
        if request_type not in (str, Any, object):
            raise Refused(f"plain text is read as str, not as {_name(request_type)}")
        return body.decode()


class OctetsCodec:
    """Bytes that mean nothing to us, for `bytes` requests only."""

    def encode(self, request: Any) -> bytes:
        if not isinstance(request, bytes):
            raise Refused(f"octets carry bytes, not {type(request).__qualname__}")
        return request

    def decode(self, body: bytes, request_type: Any) -> Any:
        if request_type not in (bytes, Any, object):
            raise Refused(f"octets are read as bytes, not as {_name(request_type)}")
        return body


def _name(kind: Any) -> str:
    return str(getattr(kind, "__qualname__", kind))


class CodecTable:
    """The codec for each content type: the user's own in front of ours."""

    def __init__(self, own: Mapping[str, Codec]) -> None:
        json, msgpack = JsonCodec(), MsgpackCodec()
        ours: dict[str, Codec] = {
            JSON: json,
            "text/json": json,
            MSGPACK: msgpack,
            "application/x-msgpack": msgpack,
            "application/vnd.msgpack": msgpack,
            "text/plain": TextCodec(),
            OCTETS: OctetsCodec(),
        }
        self._codecs = ours | {name.lower(): codec for name, codec in own.items()}

    def find(self, content_type: str, message_type: str = "") -> Codec:
        """Return the codec of a content type.

        A codec given for a whole content type, with its charset, stands above one for the media
        type; `…+json` and `…+msgpack` are what they end in. Raises MappingError for others, and
        for a charset that is not UTF-8.
        """
        codec = self._codecs.get(content_type)
        return self._search(content_type, message_type) if codec is None else codec

    def _search(self, content_type: str, message_type: str) -> Codec:
        whole = self._codecs.get(content_type.lower())
        if whole is not None:
            return whole
        parsed = parse_content_type(content_type)
        suffix = f"application/{parsed.media.rpartition('+')[2]}"
        found = self._codecs.get(parsed.media) or self._codecs.get(suffix)
        if found is None:
            shown, known = content_type[:_MAX_SHOWN], ", ".join(self._codecs)
            raise MappingError(message_type, f"no codec for {shown!r}, known: {known}")
        if not parsed.is_utf_8:
            shown = parsed.charset[:_MAX_SHOWN]
            raise MappingError(message_type, f"charset {shown!r} is not read; send UTF-8")
        return found
