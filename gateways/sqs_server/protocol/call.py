"""One request, understood: what both protocols become before an operation sees it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import (
    Annotated,
    Any,
    Final,
    NamedTuple,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)
from urllib.parse import unquote

import attrs
import msgspec

from ..model import DEFAULT_ACCOUNT, DEFAULT_REGION


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """An operation and its parameters, with where it came from.

    Parameters have the JSON protocol's names and types whatever protocol they came in: lists,
    maps, ints, and `bytes` for binary values. None is absent, never a value.
    """

    operation: str
    parameters: Mapping[str, Any]
    account: str
    region: str
    base_url: str
    """`http://host:port` as the client reached us, so that queue URLs lead back the same way."""
    sender: str
    """The access key id, or the account when there is none."""
    is_json: bool
    accepts_json: bool = False
    """A query request that asks for its answer in JSON (`Accept: application/json`)."""
    trace_header: str | None = None
    """X-Amzn-Trace-Id: what AWSTraceHeader becomes when a sender does not set it."""

    def __repr__(self) -> str:
        # Without the parameters, for bodies are among them.
        return f"Call({self.operation!r}, account={self.account!r}, region={self.region!r})"


class HttpAnswer(NamedTuple):
    """What goes back over HTTP."""

    status: int
    headers: dict[str, str]
    body: bytes


# How a member of a shape is spelled in the query protocol, and how to ask a shape for that.
#
# Shapes are `TypedDict`s whose keys are the JSON protocol's names. A member that the query protocol
# spells otherwise says so with `Annotated[…, Wire(…)]`; msgspec ignores the annotation.


@attrs.frozen
class Wire:
    """The name of a list's or map's every item, and of a map's keys and values."""

    name: str
    key: str = "Name"
    value: str = "Value"


@attrs.frozen
class ShapeMember:
    """One member of a shape: its query spelling and its Python type without annotations."""

    wire: Wire
    type: Any


@cache
def members_of(shape: Any) -> Mapping[str, ShapeMember]:
    """The members of a `TypedDict` by their JSON names."""
    hints = get_type_hints(shape, include_extras=True)
    return {name: _member(name, hint) for name, hint in hints.items()}


def _member(name: str, hint: Any) -> ShapeMember:
    if get_origin(hint) is Annotated:
        bare, *extras = get_args(hint)
        for extra in extras:
            if isinstance(extra, Wire):
                return ShapeMember(extra, bare)
    return ShapeMember(Wire(name), hint)


def is_shape(type_: Any) -> bool:
    """Whether it is a structure, and not a scalar, list or map."""
    return is_typeddict(type_)


def is_list(type_: Any) -> bool:
    """Whether it is a list; its item type is its first argument."""
    return get_origin(type_) is list


def is_map(type_: Any) -> bool:
    """Whether it is a map; its value type is its second argument."""
    return get_origin(type_) is dict


# Who calls, for which region and by which address, as far as headers and query string say.
#
# Nothing is verified here: signatures are checked by `http/sigv4.py`, when there are secrets to
# check them with.

_CREDENTIAL: Final = re.compile(r"Credential=([^,\s]{1,256})")
_PRESIGNED: Final = re.compile(r"(?:^|&)X-Amz-Credential=([^&]{1,512})")
_REGION: Final = re.compile(r"[a-z0-9-]{1,32}")
_ACCESS_KEY: Final = re.compile(r"\w{1,128}", re.ASCII)
_TRACE: Final = re.compile(r"[\x21-\x7e]{1,1024}")
_ACCOUNT: Final = re.compile(r"[0-9]{12}")
# What may be repeated in a queue URL: a name, an IPv4 or bracketed IPv6 address, and a port.
_HOST: Final = re.compile(r"(?:[A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")


@attrs.frozen
class CallerIdentity:
    """The account and region of a request, and the name its messages are sent under."""

    account: str
    region: str
    sender: str


_NOBODY: Final = CallerIdentity(DEFAULT_ACCOUNT, DEFAULT_REGION, DEFAULT_ACCOUNT)


def identify(headers: Mapping[str, str], query: str) -> CallerIdentity:
    """Read the credential scope of the Authorization header or of a presigned URL."""
    found = _CREDENTIAL.search(headers.get("authorization", ""))
    if found:
        return _identity_of(found[1])
    if "X-Amz-Credential=" in query:
        found = _PRESIGNED.search(query)
        if found:
            return _identity_of(unquote(found[1]))
    return _NOBODY


@lru_cache(maxsize=1024)
def _identity_of(credential: str) -> CallerIdentity:
    # access key/date/region/sqs/aws4_request
    key, _, scope = credential.partition("/")
    parts = scope.split("/")
    region = parts[1] if len(parts) > 1 and _REGION.fullmatch(parts[1]) else DEFAULT_REGION
    # An access key of 12 digits is an account of its own, so that tests can be kept apart.
    account = key if _ACCOUNT.fullmatch(key) else DEFAULT_ACCOUNT
    return CallerIdentity(account, region, key if _ACCESS_KEY.fullmatch(key) else account)


def trace_of(headers: Mapping[str, str]) -> str | None:
    """The trace id that came as a header, if it can be stored and sent on as text."""
    header = headers.get("x-amzn-trace-id")
    return header if header is not None and _TRACE.fullmatch(header) else None


@lru_cache(maxsize=256)
def base_url_of(host: str | None) -> str:
    """Where queue URLs shall point: back to the Host the client used, when that is a host."""
    return f"http://{host}" if host and _HOST.fullmatch(host) else "http://localhost"
