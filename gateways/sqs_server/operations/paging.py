"""Lists in pages. Pure: a token says after which name the next page starts."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final

from ..errors import invalid_parameter_value
from .parameters import Parameters, number_within, optional_text

MAX_RESULTS: Final = 1_000


def page(names: Sequence[str], parameters: Parameters) -> tuple[Sequence[str], str | None]:
    """The page that NextToken and MaxResults ask for of sorted names, and the token of the next.

    A token is given only to callers that set MaxResults, as AWS does.
    """
    limit = number_within(
        parameters,
        "MaxResults",
        1,
        MAX_RESULTS,
        reason=f"MaxResults must be an integer between 1 and {MAX_RESULTS}.",
        is_quoted=False,
    )
    token = optional_text(parameters, "NextToken")
    if token:
        after = _decode(token)
        names = [name for name in names if name > after]
    shown = names[: limit or MAX_RESULTS]
    has_more = limit is not None and len(names) > len(shown)
    return shown, _encode(shown[-1]) if has_more else None


def _encode(name: str) -> str:
    return base64.b64encode(name.encode()).decode()


def _decode(token: str) -> str:
    try:
        return base64.b64decode(token, validate=True).decode()
    except ValueError:
        raise invalid_parameter_value("Invalid or expired next token.") from None
