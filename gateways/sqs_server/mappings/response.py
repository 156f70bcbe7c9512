"""The response: which messages a function's return value says have failed. Pure.

Only with `report_batch_item_failures`. As AWS documents it: nothing, an empty answer (text and
list too) and an empty or null list say that all is done; an answer that makes no sense fails the
whole batch, because what it meant to keep must not be deleted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Set
from typing import Any, Final

MAX_ANSWER_BYTES: Final = 6 * 1024 * 1024 + 100
"""Lambda documents 6 MB; this is the number that its error names."""

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False)


class MalformedResponse(ValueError):
    """The function returned what Lambda cannot read; the whole batch has failed."""


def as_json(value: object) -> Any:
    """A return value as Lambda gets it. Raises MalformedResponse when it does not.

    May run code of the function's, and raise what that raises: a value may be of its own classes.
    """
    try:
        return json.loads("".join(_chunks(value)))
    except MalformedResponse:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise MalformedResponse(f"the function returned what JSON cannot hold: {error}") from None


def _chunks(value: object) -> Iterator[str]:
    # Piece by piece, unlike `json.dumps`, which lets no other thread run until it is done, and
    # makes the whole of what is then too large.
    size = 0
    for chunk in _ENCODER.iterencode(value):
        size += len(chunk.encode(errors="surrogatepass"))
        if size > MAX_ANSWER_BYTES:
            raise MalformedResponse(
                f"the function returned more than {MAX_ANSWER_BYTES:,} bytes of JSON, "
                f"Lambda's limit"
            )
        yield chunk


def failed_ids(answer: Any, sent: Set[str]) -> Set[str]:
    """The ids among `sent` that the answer reports. Raises MalformedResponse."""
    if answer is None or answer in ("", []):  # nothing at all, in any of JSON's words
        return frozenset()
    if not isinstance(answer, dict):
        raise MalformedResponse(
            f"the function returned {type(answer).__name__}, not a table with batchItemFailures"
        )
    failures = answer.get("batchItemFailures")
    if failures is None:
        return frozenset()
    if not isinstance(failures, list):
        raise MalformedResponse("batchItemFailures is not a list")
    return frozenset(_identifier(failure, sent) for failure in failures)


def _identifier(failure: Any, sent: Set[str]) -> str:
    identifier = failure.get("itemIdentifier") if isinstance(failure, dict) else None
    if not isinstance(identifier, str) or not identifier:
        raise MalformedResponse('an item failure is not {"itemIdentifier": "<messageId>"}')
    if identifier not in sent:
        raise MalformedResponse(f"itemIdentifier {identifier!r} is not in this batch")
    return identifier
