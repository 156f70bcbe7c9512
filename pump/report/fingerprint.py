"""Fingerprints: what failures of one kind have in common, whatever ids and numbers they quote.

A text is taken through the same few replacements here and in either engine's SQL, so the patterns
keep to what Python, RE2 (DuckDB) and Java (Spark) read alike: no look-around, no classes that
know Unicode in one and not in the other, no dot, and no quotes. A test compares the three.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

MAX_TEXT = 300
"""Characters of a text that are looked at."""
LENGTH = 12
"""Characters of a fingerprint."""


class Replacement(NamedTuple):
    """One step: what `pattern` finds becomes `text`, behind its first group if `keeps_first`."""

    pattern: str
    text: str
    keeps_first: bool = False


_UUID = "-".join(f"[0-9A-Fa-f]{{{length}}}" for length in (8, 4, 4, 4, 12))
REPLACEMENTS = (
    Replacement(r"[ \t\r\n\f]+", " "),
    Replacement(r"[A-Za-z][A-Za-z0-9+.\-]*://[^ \x22\x27<>()\[\]{},;]*", "<url>"),
    Replacement(r"[A-Za-z0-9._%+\-]+@[A-Za-z0-9.\-]+", "<email>"),
    # A text may have been cut off before the quote that closes.
    Replacement(r"\x22[^\x22]*(\x22|\z)|\x60[^\x60]*(\x60|\z)|“[^”]*(”|\z)", "<text>"),
    # Behind a letter it is an apostrophe: can't.
    Replacement(r"(^|[^A-Za-z0-9])[bru]?\x27[^\x27]*(\x27|\z)", "<text>", keeps_first=True),
    Replacement(r"(/[A-Za-z0-9._~%@+\-]+){2,}/?|[A-Za-z]:\\[^ <>,;]*", "<path>"),
    # A number, or any word with a digit in it: ids come in too many shapes to tell them apart.
    Replacement(rf"{_UUID}|[A-Za-z0-9]*[0-9][A-Za-z0-9]*|[0-9A-Fa-f]{{16,}}", "#"),
    # Decimals, times, and lists of any length.
    Replacement(r"#([.,:; ]+#)+", "#"),
    Replacement(r"<text>([,:; ]+<text>)+", "<text>"),
    # Each engine's own `trim` knows other spaces.
    Replacement(r"^ | \z", ""),
)
_COMPILED = [
    (
        re.compile(each.pattern.replace(r"\z", r"\Z")),
        rf"\g<1>{each.text}" if each.keeps_first else each.text,
    )
    for each in REPLACEMENTS
]


def normalised(text: str) -> str:
    """The text without what differs from one failure of a kind to the next."""
    text = text[:MAX_TEXT]
    for pattern, replacement in _COMPILED:
        text = pattern.sub(replacement, text)
    return text


def fingerprint_of(text: str) -> str:
    """A short name for all texts that come to the same when normalised."""
    digest = hashlib.md5(
        normalised(text).encode("utf-8", "backslashreplace"), usedforsecurity=False
    )
    return digest.hexdigest()[:LENGTH]
