"""How a member of a shape is spelled in the query protocol, and how to ask a shape for that.

Shapes are `TypedDict`s whose keys are the JSON protocol's names. A member that the query protocol
spells otherwise says so with `Annotated[…, Wire(…)]`; msgspec ignores the annotation.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints, is_typeddict

import attrs


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
