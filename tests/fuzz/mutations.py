"""Mutations: valid input, spoilt a little, which gets further into a parser than noise does.

One kind for sequences, bytes or text, and one for trees, which are JSON's values. Hypothesis draws
what is spoilt, how often, and the number from which the changes follow, so it can leave the last
ones out while it looks for the smallest failure. Drawing every position would shrink further, and
try a tenth of the inputs in the same time.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, Final, TypeVar

from hypothesis import strategies as st

S = TypeVar("S", bytes, str)

INTERESTING_BYTES: Final = (
    *(b"", b"\x00", b"\xff", b"\xc0", b"\xc1", b"\xed\xa0\x80", b"\xef\xbb\xbf"),
    *(b"\r\n", b"\n", b" ", b":", b",", b'"', b"{", b"}", b"[", b"]", b"null", b"NaN", b"1e999"),
    *(b"-1", b"0", b"9" * 20, b"9" * 5_000, b"%", b"%ff", b"%00", b"\\ud800", b"&", b"="),
    # MessagePack: an array, a map, a text and an extension of four thousand million.
    *(b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff"),
    *(b"\xc9\xff\xff\xff\xff\x01", b"\x91" * 2_000, b"\x81\xa1a" * 2_000),
    *(b"[" * 2_000, b'{"a":' * 2_000),
)  # fmt: skip
INTERESTING_TEXTS: Final = (
    *("", "\0", "\ud800", "\udcff", "\ufeff", "\uffff", "\u0663", "\u00e9", "\U0001f4a9", "\u2028"),
    *("\r\n", "\n", "\t", " ", ":", ",", '"', "'", "{", "}", "[", "]", "null", "NaN", "1e999", "-"),
    *("-1", "0", "9" * 20, "9" * 5_000, "0x" + "f" * 5_000, "%", "%ff", "%00", "\\ud800", "&", "="),
    *("/", "..", "@", "://", "[::1", "arn:", ".fifo", "*", "\\", "!!", "? ", "- ", "&a ", "*a"),
    *("[" * 2_000, '{"a":' * 2_000, "2001-99-99", "!!int x", "!!timestamp x", "!!bool x", "<<: "),
)  # fmt: skip
HOSTILE_SCALARS: Final = (
    *(None, True, False, 0, -1, 1, 2**31, 2**53 + 1, 2**63, 2**64, 10**400, -(10**30)),
    *(0.5, -0.0, 1e308, float("inf"), float("-inf"), float("nan")),
    *("", " ", "0", "-1", "\0", "\ud800", "\udcff", "\u0663", "%ff", "x" * 300, "9" * 5_000),
)  # fmt: skip
_NAMES: Final = ("", "type", "id", "Name", "\ud800", "\0", "\u00e9", "a" * 300)

# One mostly: of what a parser checks strictly, a second change rarely gets to be seen.
_counts = st.sampled_from([1, 1, 1, 2, 3, 4])


def _chance(draw: st.DrawFn) -> Random:
    # One number an input: Hypothesis repeats numbers inside of one, and across them far less.
    return Random(draw(st.integers(0, 2**63)))


def mutated(seeds: Sequence[S]) -> st.SearchStrategy[S]:
    """One of the seeds, spoilt: bits flipped, parts cut, doubled, moved, mixed, put in."""
    return _spoilt(tuple(seeds))


@st.composite
def _spoilt(draw: st.DrawFn, seeds: tuple[Any, ...]) -> Any:
    chance, whole = _chance(draw), draw(st.sampled_from(seeds))
    for _ in range(draw(_counts)):
        whole = chance.choice(_SPOILERS)(chance, whole, seeds)
    return whole


def _part(chance: Random, whole: Sequence[Any]) -> tuple[int, int]:
    """Where it begins and ends; short ones mostly: a field, a delimiter, a length."""
    start = chance.randint(0, len(whole))
    width = chance.randint(0, chance.choice((1, 4, 8, len(whole))))
    return start, min(start + width, len(whole))


def _flip(chance: Random, whole: S, _: Sequence[S]) -> S:
    if not whole:
        return whole
    at, bit = chance.randrange(len(whole)), 1 << chance.randrange(8)
    old: Any = whole[at]
    new: S = bytes([old ^ bit]) if isinstance(old, int) else chr(ord(old) ^ bit)  # type: ignore[assignment]
    return whole[:at] + new + whole[at + 1 :]


def _truncate(chance: Random, whole: S, _: Sequence[S]) -> S:
    return whole[: chance.randint(0, len(whole))]


def _cut(chance: Random, whole: S, _: Sequence[S]) -> S:
    start, end = _part(chance, whole)
    return whole[:start] + whole[end:]


def _double(chance: Random, whole: S, _: Sequence[S]) -> S:
    start, end = _part(chance, whole)
    return whole[:start] + whole[start:end] * chance.choice((2, 3, 64)) + whole[end:]


def _insert(chance: Random, whole: S, _: Sequence[S]) -> S:
    start, end = _part(chance, whole)
    put_in: S = chance.choice(_interesting_for(whole))
    return whole[:start] + put_in + whole[chance.choice((start, end)) :]


def _interesting_for(whole: Any) -> Any:
    return INTERESTING_BYTES if isinstance(whole, bytes) else INTERESTING_TEXTS


def _swap(chance: Random, whole: S, _: Sequence[S]) -> S:
    a, b, c, d = sorted(chance.randint(0, len(whole)) for _ in range(4))
    return whole[:a] + whole[c:d] + whole[b:c] + whole[a:b] + whole[d:]


def _splice(chance: Random, whole: S, seeds: Sequence[S]) -> S:
    other: S = chance.choice(seeds)
    return whole[: chance.randint(0, len(whole))] + other[chance.randint(0, len(other)) :]


_SPOILERS: Final[tuple[Callable[..., Any], ...]] = (
    *(_flip, _flip, _truncate, _cut, _double, _insert, _insert, _swap, _splice),
)


def mutated_tree(seeds: Sequence[Any]) -> st.SearchStrategy[Any]:
    """One of the seeds, JSON's values, with members removed, renamed, replaced, swapped."""
    return _spoilt_tree(tuple(seeds))


@st.composite
def _spoilt_tree(draw: st.DrawFn, seeds: tuple[Any, ...]) -> Any:
    # In a box, so that the whole can be replaced like any part of it.
    chance, box = _chance(draw), [copy.deepcopy(draw(st.sampled_from(seeds)))]
    for _ in range(draw(_counts)):
        places = list(_places(box))
        if places:
            chance.choice(_PRUNERS)(chance, places)
    return box[0] if box else None


Place = tuple[Any, Any]
"""A container and one of its keys."""


def _places(tree: Any) -> Iterator[Place]:
    waiting = [tree]
    while waiting:
        container = waiting.pop()
        for key in list(container) if isinstance(container, dict) else range(len(container)):
            yield container, key
            if isinstance(container[key], dict | list):
                waiting.append(container[key])


def _replace(chance: Random, places: Sequence[Place]) -> None:
    container, key = chance.choice(places)
    container[key] = _hostile(chance)


def _hostile(chance: Random) -> Any:
    scalar = chance.choice(HOSTILE_SCALARS)
    wraps: tuple[Any, ...] = (scalar, scalar, scalar, [], {}, [scalar], {"a": scalar}, [[scalar]])
    return chance.choice(wraps)


def _remove(chance: Random, places: Sequence[Place]) -> None:
    container, key = chance.choice(places)
    del container[key]


def _exchange(chance: Random, places: Sequence[Place]) -> None:
    (one, one_key), (other, other_key) = chance.choice(places), chance.choice(places)
    # Copies, or a tree might come to hold itself.
    one[one_key], other[other_key] = (
        copy.deepcopy(other[other_key]),
        copy.deepcopy(one[one_key]),
    )


def _wrap(chance: Random, places: Sequence[Place]) -> None:
    container, key = chance.choice(places)
    content = container[key]
    container[key] = chance.choice(([content], {chance.choice(_NAMES): content}))


def _rename(chance: Random, places: Sequence[Place]) -> None:
    container, key = chance.choice(places)
    if isinstance(container, dict):
        container[chance.choice(_NAMES)] = container.pop(key)
    else:
        container.insert(key, copy.deepcopy(container[key]))


def _spoil_text(chance: Random, places: Sequence[Place]) -> None:
    texts = [place for place in places if isinstance(place[0][place[1]], str)]
    if texts:
        container, key = chance.choice(texts)
        text = container[key]
        container[key] = chance.choice(_SPOILERS)(chance, text, [text])


_PRUNERS: Final = (_replace, _replace, _remove, _exchange, _wrap, _rename, _spoil_text, _spoil_text)

_scalars = st.sampled_from(HOSTILE_SCALARS) | st.text(max_size=8) | st.integers() | st.floats()
hostile_scalars: st.SearchStrategy[Any] = _scalars
"""JSON's scalars, and what Python's parsers also take for such: NaN, huge, lone surrogates."""
hostile_values: st.SearchStrategy[Any] = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=5,
)
"""Trees of them, small."""
any_text = st.text(st.characters(exclude_categories=()), max_size=40)
"""Whatever a Python string can hold, lone surrogates included."""
