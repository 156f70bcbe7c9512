"""The text of a ring: how it is written, and how it is not."""

from __future__ import annotations

import base64

import pytest

from pump.crypto import (
    Key,
)
from pump.crypto.sources import parse_ring
from pump.errors import ConfigurationError

from .written_keys import A, B, entry

SECRET = base64.b64encode(b"the secret of thirty-two bytes..").decode()


@pytest.mark.parametrize(
    "text",
    [
        f"{entry('a', A)},{entry('b', B)}",
        f"# first\n{entry('a', A)}\n\n  # second\n  {entry('b', B)}  \n",
        f" {entry('a', A)} , {entry('b', B)} ,\n",
        f"{entry('a', A)}\r\n{entry('b', B)}\r\n",
        f"{entry('a', A)}\n{entry('b', B).rstrip('=')}",
    ],
)
def test_when_a_ring_is_written_then_its_first_key_seals_and_all_open(text: str) -> None:
    ring = parse_ring(text, source="here")

    assert (ring.active_id, ring.ids) == ("a", ("a", "b"))
    assert ring.keys[0].has_material_of(Key("x", A))
    assert ring.keys[1].has_material_of(Key("x", B))


def test_when_base64_is_of_the_other_alphabet_then_it_is_read_too() -> None:
    material = b"\xfb\xff" * 16
    text = "tenant:blue:2026:" + base64.urlsafe_b64encode(material).decode()

    [key] = parse_ring(text, source="here").keys

    assert key.id == "tenant:blue:2026"
    assert key.has_material_of(Key("x", material))


@pytest.mark.parametrize(
    ("text", "field", "remedy"),
    [
        ("", "here", "holds no key"),
        ("# nothing\n,,\n", "here", "holds no key"),
        (SECRET, "here, key 1", "has no id"),
        (f":{SECRET}", "here, key 1", "has no id"),
        (f"my key:{SECRET}", "here, key 1", "has no id"),
        (f"{SECRET}:2026-01", "here, key 1", "has 5 bytes"),
        (f"{SECRET}:2026.01", "here, key 1", "is not base64"),
        (f"{SECRET}:abcd", "here, key 1", "has 3 bytes"),
        (f"a:{SECRET}\nb:{SECRET}{SECRET}", "here, key 2", "is not base64"),
        (f"a:{SECRET}\nb:{SECRET[:20]}", "here, key 2", "has 15 bytes"),
        (f"a:{SECRET}\nb:{SECRET[:-1]}ä", "here, key 2", "is not base64"),
        (f"a:{SECRET}\nb:{SECRET}\na:{SECRET}", "here, key 3", "has the id of key 1"),
    ],
)
def test_when_a_ring_is_written_wrongly_then_the_error_says_where_and_repeats_nothing(
    text: str, field: str, remedy: str
) -> None:
    """R69: what looks like an id may be the key."""
    with pytest.raises(ConfigurationError, match=remedy) as caught:
        parse_ring(text, source="here")

    assert caught.value.field == field
    assert SECRET[:6] not in str(caught.value)
    assert caught.value.__context__ is None or SECRET[:6] not in str(caught.value.__context__)
