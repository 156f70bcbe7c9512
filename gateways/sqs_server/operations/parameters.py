"""Reading a call's parameters: there or not, and within their limits. Pure.

Their types are right: the protocol checked them where the request came in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..errors import invalid_parameter_value, invalid_value, missing_parameter

Parameters = Mapping[str, Any]

_TOKEN: Final = re.compile(r"[A-Za-z0-9!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]{1,128}")


def text(parameters: Parameters, name: str) -> str:
    """A string that must be there and not be empty."""
    value: str | None = parameters.get(name)
    if not value:
        raise missing_parameter(name)
    return value


def optional_text(parameters: Parameters, name: str) -> str | None:
    """A string, or None when it was not given."""
    value: str | None = parameters.get(name)
    return value


def number_within(
    parameters: Parameters, name: str, low: int, high: int, *, reason: str, is_quoted: bool = True
) -> int | None:
    """A number between two others, or None when not given; else AWS's refusal with `reason`.

    The refusals of AWS's younger operations do not quote the number: not `is_quoted`.
    """
    value: int | None = parameters.get(name)
    if value is not None and not low <= value <= high:
        if is_quoted:
            raise invalid_value(name, value, reason)
        raise invalid_parameter_value(f"Value for parameter {name} is invalid. Reason: {reason}")
    return value


def texts(parameters: Parameters, name: str) -> Sequence[str]:
    """A list of strings; empty when it was not given."""
    return parameters.get(name) or ()


def text_map(parameters: Parameters, name: str) -> Mapping[str, str]:
    """A map from strings to strings; empty when it was not given."""
    return parameters.get(name) or {}


def optional_token(parameters: Parameters, name: str) -> str | None:
    """A group, deduplication or attempt id: letters, digits and punctuation, at most 128."""
    value: str | None = parameters.get(name)
    if value is not None and _TOKEN.fullmatch(value) is None:
        raise invalid_value(
            name,
            value,
            f"{name} can only include alphanumeric and punctuation characters. 1 to 128 in length.",
        )
    return value
