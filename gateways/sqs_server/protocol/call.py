"""One request, understood: what both protocols become before an operation sees it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints, is_typeddict

import attrs
import msgspec


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


class Answer(NamedTuple):
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
class Member:
    """One member of a shape: its query spelling and its Python type without annotations."""

    wire: Wire
    type: Any


@cache
def members_of(shape: Any) -> Mapping[str, Member]:
    """The members of a `TypedDict` by their JSON names."""
    hints = get_type_hints(shape, include_extras=True)
    return {name: _member(name, hint) for name, hint in hints.items()}


def _member(name: str, hint: Any) -> Member:
    if get_origin(hint) is Annotated:
        bare, *extras = get_args(hint)
        for extra in extras:
            if isinstance(extra, Wire):
                return Member(extra, bare)
    return Member(Wire(name), hint)


def is_shape(type_: Any) -> bool:
    """Whether it is a structure, and not a scalar, list or map."""
    return is_typeddict(type_)


def is_list(type_: Any) -> bool:
    """Whether it is a list; its item type is its first argument."""
    return get_origin(type_) is list


def is_map(type_: Any) -> bool:
    """Whether it is a map; its value type is its second argument."""
    return get_origin(type_) is dict
