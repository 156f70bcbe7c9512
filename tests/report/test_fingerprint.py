"""Fingerprints: what differs from one failure to the next is left out, and nothing else."""

from __future__ import annotations

from uuid import UUID

import duckdb
import pytest
from hypothesis import given, strategies as st

from pump.report.engine import DuckdbDialect
from pump.report.fingerprint import LENGTH, MAX_TEXT, fingerprint_of, normalised

from .texts import TEXTS

SAFE = st.text(st.characters(codec="utf-8", exclude_characters="'\"`“”"), max_size=20)


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("order 123 failed", "order # failed"),
        ("order 12,345.67 failed", "order # failed"),
        ("KeyError: 'customer'", "KeyError: <text>"),
        ('no "item" left', "no <text> left"),
        ("can't open, won't try", "can't open, won't try"),
        ("GET https://a.example/b?c=1: 503", "GET <url> #"),
        ("mail ada@shop.example bounced", "mail <email> bounced"),
        ("open /var/lib/shop/a.txt: gone", "open <path>: gone"),
        ("and/or", "and/or"),
        ("id 4f3a8b1c-1111-2222-3333-abcdefabcdef", "id #"),
        ("at 0xDEADBEEF of abcdefabcdefabcd", "at # of #"),
        ("ids [1, 2, 3]", "ids [#]"),
        ("two\n  lines\tand more ", "two lines and more"),
        ("", ""),
    ],
)
def test_when_a_text_is_normalised_then_only_what_varies_is_gone(text: str, pattern: str) -> None:
    """R78: numbers, ids, quoted texts, paths and addresses vary; words do not."""
    assert normalised(text) == pattern


@given(first=st.integers(0), second=st.integers(0))
def test_when_only_numbers_differ_then_the_fingerprint_is_the_same(first: int, second: int) -> None:
    """R78: like failures have one fingerprint."""
    assert fingerprint_of(f"order {first} late") == fingerprint_of(f"order {second} late")


@given(first=st.uuids(), second=st.uuids())
def test_when_only_ids_differ_then_the_fingerprint_is_the_same(first: UUID, second: UUID) -> None:
    """R78: however an id is written."""
    texts = {normalised(f"no such item {each}") for each in (first, second, first.hex)}
    assert texts == {"no such item #"}


@given(first=SAFE, second=SAFE)
def test_when_only_quoted_texts_differ_then_the_fingerprint_is_the_same(
    first: str, second: str
) -> None:
    """R78: whatever was quoted, unless it hides a quote or an address."""
    plain = [each.replace("://", "").replace("@", "") for each in (first, second)]
    assert {normalised(f"bad value '{each}' here") for each in plain} == {"bad value <text> here"}


@given(st.text())
def test_when_a_text_is_garbage_then_it_has_a_fingerprint(text: str) -> None:
    """R78: no text is refused, and none makes a long pattern."""
    assert len(fingerprint_of(text)) == LENGTH
    assert len(normalised(text)) <= MAX_TEXT * 7


def test_when_words_differ_then_so_do_the_fingerprints() -> None:
    """R78: failures that are not alike are not put together."""
    texts = ["order 1 late", "order 1 lost", "Order 1 late", "orders late"]
    assert len({fingerprint_of(each) for each in texts}) == len(texts)


def test_when_duckdb_normalises_then_it_does_as_python_does() -> None:
    """R78: a fingerprint is the same wherever it was made."""
    dialect = DuckdbDialect()
    sql = f"SELECT {dialect.normalised('t')}, {dialect.fingerprint('t')} FROM (SELECT $1 AS t)"

    with duckdb.connect() as connection:
        for text in TEXTS:
            found = connection.execute(sql, [text]).fetchone()
            assert found == (normalised(text), fingerprint_of(text)), repr(text)
