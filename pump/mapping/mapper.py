"""Mapper: the way from a request to a message and back."""

from __future__ import annotations

import builtins
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NoReturn, Protocol, get_origin

import attrs
import msgspec

from ..clock import SYSTEM_CLOCK, Clock
from ..cloudevents import from_event, is_event, to_binary, to_structured
from ..errors import ConfigurationError, MappingError
from ..headers import CLAIM, MSGPACK, OCTETS, TEXT, parse_content_type
from ..message import JSON, Message, new_id
from ..outcome import Signal
from ..subscription import Subscription, TypeResolver
from .converter import (
    Format,
    JsonFormat,
    MsgpackFormat,
    Read,
    Write,
    reader_for,
    unreadable_parts,
    writer_for,
)
from .faults import MappingFault, describe

# Codecs: one for each content type, between a body and a request.

_MAX_SHOWN_BODY = 100


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
            raise MappingFault(f"plain text carries str, not {type(request).__qualname__}")
        return request.encode()

    def decode(self, body: bytes, request_type: Any) -> Any:
        if request_type not in (str, Any, object):
            raise MappingFault(f"plain text is read as str, not as {_name(request_type)}")
        return body.decode()


class OctetsCodec:
    """Bytes that mean nothing to us, for `bytes` requests only."""

    def encode(self, request: Any) -> bytes:
        if not isinstance(request, bytes):
            raise MappingFault(f"octets carry bytes, not {type(request).__qualname__}")
        return request

    def decode(self, body: bytes, request_type: Any) -> Any:
        if request_type not in (bytes, Any, object):
            raise MappingFault(f"octets are read as bytes, not as {_name(request_type)}")
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
            shown, known = content_type[:_MAX_SHOWN_BODY], ", ".join(self._codecs)
            raise MappingError(message_type, f"no codec for {shown!r}, known: {known}")
        if not parsed.is_utf_8:
            shown = parsed.charset[:_MAX_SHOWN_BODY]
            raise MappingError(message_type, f"charset {shown!r} is not read; send UTF-8")
        return found


_OWN_CONTENT_TYPES: dict[type, str] = {bytes: OCTETS, str: TEXT}


def _frozen_types(types: Iterable[type]) -> tuple[type, ...]:
    return tuple(types)


def _own_names(names: Mapping[str, type]) -> dict[str, type]:
    return dict(names)


def _own_codecs(codecs: Mapping[str, Codec]) -> dict[str, Codec]:
    return dict(codecs)


@attrs.frozen(kw_only=True, eq=False)
class Mapper:
    """Turns requests into messages and messages into requests; changes nothing after it is made.

    Every method raises `MappingError` for a message or request it cannot map, and nothing else
    but a `Signal` that a resolver, a codec or a request's own validation raised on purpose.
    """

    types: tuple[type, ...] = attrs.field(default=(), converter=_frozen_types)
    """The requests that a type header may name, each under `type_name_of`."""
    names: Mapping[str, type] = attrs.field(factory=dict, converter=_own_names)
    """Further names on the wire. The first one of a class is written, the others only read."""
    codecs: Mapping[str, Codec] = attrs.field(factory=dict, converter=_own_codecs)
    """Codecs by content type, in front of ours: JSON, MessagePack, plain text and octets."""
    content_type: str = JSON
    """What requests are written as, except `str` (plain text) and `bytes` (octets)."""
    cloudevents: Literal["structured", "binary"] | None = None
    """Write messages as CloudEvents. They are read in either mode whatever stands here."""
    source: str | None = None
    """The `source` of the CloudEvents that are written."""
    clock: Clock = SYSTEM_CLOCK
    """Where a message's time of creation comes from."""
    _names: Names = attrs.field(init=False, repr=False)
    _codecs: CodecTable = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if self.cloudevents not in (None, "structured", "binary"):
            raise ConfigurationError(
                "Mapper.cloudevents", self.cloudevents, "use 'structured', 'binary' or None"
            )
        if self.cloudevents is not None and not self.source:
            raise ConfigurationError(
                "Mapper.source", self.source, "CloudEvents need a source, such as '/orders'"
            )
        object.__setattr__(self, "_names", Names(self.types, self.names))
        object.__setattr__(self, "_codecs", CodecTable(self.codecs))
        try:
            self._codecs.find(self.content_type)
        except MappingError as error:
            raise ConfigurationError(
                "Mapper.content_type", self.content_type, error.detail
            ) from error

    def encode(
        self,
        request: Any,
        *,
        id: str | None = None,
        type: str | None = None,
        content_type: str | None = None,
        correlation_id: str | None = None,
        reply_to: str | None = None,
        group: str | None = None,
        deduplication_id: str | None = None,
        created_at_s: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Message:
        """Return a message that carries `request`; the keywords are the message's fields.

        A `bytes` request is the body as it stands, and `content_type` then only labels it.
        """
        kind = request.__class__
        if type is None:
            type = self._names.written(kind)
        if content_type is None:
            content_type = _OWN_CONTENT_TYPES.get(kind, self.content_type)
        message = Message(
            body=request if kind is bytes else self._write(request, type, content_type),
            id=new_id() if id is None else id,
            type=type,
            content_type=content_type,
            correlation_id=correlation_id,
            reply_to=reply_to,
            group=group,
            deduplication_id=deduplication_id,
            created_at_s=self.clock.time_s() if created_at_s is None else created_at_s,
            headers={} if headers is None else dict(headers),
        )
        if self.cloudevents is None:
            return message
        write = to_structured if self.cloudevents == "structured" else to_binary
        return write(message, source=self.source)

    def normalise(self, message: Message) -> Message:
        """Return what a CloudEvent carries as a message of ours; any other message as it is.

        Raises `MappingError` for a message whose body was left elsewhere and did not come along:
        `bytes` would take the empty one for it.
        """
        headers = message.headers
        if not headers and message.content_type == JSON:
            return message
        if not message.body and CLAIM in headers:
            raise MappingError(
                message.type,
                "its body is not here: what its claim names is gone, or no claim check is set up",
            )
        return from_event(message) if is_event(message) else message

    def resolve(self, message: Message, subscription: Subscription) -> builtins.type:
        """Return the type of the request a message carries.

        The subscription's resolver is asked first. Where it knows none, the type header names
        one of `types` or `names`, or the subscription's request. Without a type header, and for
        a subscription to a built-in type (`dict`, `bytes`), it is the subscription's request.
        """
        return self._resolve(self.normalise(message), subscription)

    def _resolve(self, message: Message, subscription: Subscription) -> builtins.type:
        if subscription.resolver is not None:
            found = _ask(subscription.resolver, message)
            if found is not None:
                return found
        return self._names.meaning(message.type, subscription.request)

    def decode(self, message: Message, request_type: Any) -> Any:
        """Return the request of that type which `message` carries.

        `bytes` gives the body as it stands, whatever its content type.
        """
        return self._decode(self.normalise(message), request_type)

    def _decode(self, message: Message, request_type: Any) -> Any:
        if request_type is bytes:
            return message.body
        codec = self._codecs.find(message.content_type, message.type)
        try:
            return codec.decode(message.body, request_type)
        except (Signal, MappingError):
            raise
        except Exception as error:  # broad: a request's own code and any codec may raise anything
            raise MappingError(message.type, describe(error, message.body)) from error

    def read(self, message: Message, subscription: Subscription) -> Any:
        """Return the request a message carries: `normalise`, `resolve` and `decode` in one.

        A subscription to `Message` gets the message itself, as it came.
        """
        if subscription.request is Message:
            return message
        message = self.normalise(message)
        return self._decode(message, self._resolve(message, subscription))

    def check(self, request_type: Any) -> None:
        """Raise ConfigurationError unless messages can be read as this type.

        For the start of a program: a class that nothing can read would otherwise show as one
        rejected message after the other.
        """
        if request_type is Message:
            return
        try:
            unreadable = unreadable_parts(request_type)
            reader_for(request_type, JsonFormat())
        except (TypeError, NameError, NotImplementedError) as error:
            raise ConfigurationError("request", request_type, str(error)) from error
        if unreadable:
            raise ConfigurationError(
                "request",
                request_type,
                f"{', '.join(unreadable)} cannot be read; use an attrs class, a dataclass, "
                f"a msgspec struct or a pydantic model",
            )

    def _write(self, request: Any, name: str, content_type: str) -> bytes:
        codec = self._codecs.find(content_type, name)
        try:
            return codec.encode(request)
        except (Signal, MappingError):
            raise
        except Exception as error:  # broad: the same holds for writing
            what = f"{builtins.type(request).__qualname__} cannot be written as {content_type}"
            # These speak of types and names, others might quote the request.
            is_quotable = isinstance(error, TypeError | NameError | MappingFault)
            why = error if is_quotable else builtins.type(error)
            raise MappingError(name, f"{what}: {getattr(why, '__name__', why)}") from error


def _ask(resolver: TypeResolver, message: Message) -> type | None:
    try:
        found: Any = resolver(message)
    except (Signal, MappingError):
        raise
    except Exception as error:  # broad: a resolver is the user's code
        words = f"the resolver failed: {describe(error, message.body).removeprefix('$: ')}"
        raise MappingError(message.type, words) from error
    if found is None or isinstance(found, type) or get_origin(found) is not None:
        known: type | None = found
        return known
    raise MappingError(message.type, f"the resolver returned {type(found).__qualname__}, no class")


# Names: how a request's class is spelt in a message's type header.

_MAX_SHOWN = 10
_NAMELESS = (builtins.__name__, typing.__name__, types.__name__)


def type_name_of(request_type: Any) -> str:
    """Return the name a type has on the wire.

    It is the class's own `__message_type__` if it has one, else its name, with the classes it
    is nested in and without its module, so that moving a module breaks no queue. A subclass
    does not inherit `__message_type__`: it is another kind of message. Built-in types (`dict`,
    `bytes`, `Any`) have no name, "", because they say nothing about what is in a message.
    """
    kind = typing.get_origin(request_type) or request_type
    module = getattr(kind, "__module__", "")
    if module in _NAMELESS or not hasattr(kind, "__qualname__"):
        return ""
    given = vars(kind).get("__message_type__")
    return given if isinstance(given, str) else kind.__qualname__.rpartition("<locals>.")[2]


class Names:
    """Which type a name on the wire means, and which name a type is written under.

    `names` adds to what the classes say of themselves. The first name it gives a class is
    written, unless the class has its own `__message_type__`; the others are only read.
    """

    def __init__(self, request_types: Iterable[type], names: Mapping[str, type]) -> None:
        self._meaning = dict(names)
        self._written: dict[type, str] = {}
        # Asked once for each message, and a dictionary is ten times as fast as reflection.
        self._own: dict[type, str] = {}
        for name, request_type in names.items():
            own = vars(request_type).get("__message_type__")
            self._written.setdefault(request_type, own if isinstance(own, str) else name)
        for request_type in request_types:
            self._add(request_type)

    def _add(self, request_type: type) -> None:
        name = type_name_of(request_type)
        if name and self._meaning.setdefault(name, request_type) is not request_type:
            raise ConfigurationError(
                "Mapper.types",
                request_type,
                f"{name!r} already means {self._meaning[name]!r}; "
                f"give one of them a __message_type__",
            )

    def written(self, kind: type) -> str:
        """Return the name to write for a class."""
        name = self._written.get(kind)
        if name is None:
            name = self._written[kind] = type_name_of(kind)
        return name

    def meaning(self, name: str, request: type | None) -> type:
        """Return the type a message of this name carries, on a subscription to `request`.

        Raises MappingError for a name that nothing has.
        """
        if request is not None:
            own = self._own.get(request)
            if own is None:
                own = self._own[request] = type_name_of(request)
            if not name or not own:
                return request
            if name == own:
                return self._meaning.get(name, request)
        found = self._meaning.get(name)
        if found is None:
            self._refuse(name, request)
        return found

    def _refuse(self, name: str, request: type | None) -> NoReturn:
        if not name:
            raise MappingError(name, "it has no type, and its subscription no request type")
        known = list(dict.fromkeys([*([type_name_of(request)] if request else []), *self._meaning]))
        shown = ", ".join(known[:_MAX_SHOWN]) + (", …" if len(known) > _MAX_SHOWN else "")
        raise MappingError(
            name,
            f"unknown type, known: {shown or 'none'}; register a handler for it, or give a class "
            f"that name with __message_type__ or Mapper(names=…)",
        )
