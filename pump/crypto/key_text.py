"""The text of a key ring, as it stands in a file or an environment variable.

    # The first key seals; all of them open.
    2026-02:q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA=
    2026-01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=

One key an entry: its id, a colon, its 32 bytes in base64 (the URL-safe alphabet and missing
padding are fine). Entries are on lines of their own or separated by commas; lines that start with
`#` are comments. An id has no comma and no white space in it. No error repeats any of it: where an
entry is wrong, what looks like an id may be the key.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator

from ..errors import ConfigurationError
from .keys import KEY_SIZE, Key, KeyRing

_HIDDEN = "…"
_ADVICE = f"write it as id:base64, with the {KEY_SIZE} bytes that `openssl rand -base64 32` makes"


def parse_ring(text: str, *, source: str) -> KeyRing:
    """Read a ring; `source` names where the text is from. Raises `ConfigurationError`."""
    keys = [
        _key(entry, f"{source}, key {number}") for number, entry in enumerate(_entries(text), 1)
    ]
    if not keys:
        raise ConfigurationError(source, "", f"holds no key; {_ADVICE}")
    numbers: dict[str, int] = {}
    for number, key in enumerate(keys, 1):
        first = numbers.setdefault(key.id, number)
        if first != number:
            raise ConfigurationError(
                f"{source}, key {number}",
                _HIDDEN,
                f"has the id of key {first}; give each key its own",
            )
    return KeyRing(keys[0], retired=keys[1:])


def _entries(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if not line.lstrip().startswith("#"):
            yield from filter(None, map(str.strip, line.split(",")))


def _key(entry: str, field: str) -> Key:
    id_, colon, encoded = (part.strip() for part in entry.rpartition(":"))
    if not colon or not id_ or any(character.isspace() for character in id_):
        raise ConfigurationError(field, _HIDDEN, f"has no id; {_ADVICE}")
    try:
        material = _decoded(encoded)
    except (binascii.Error, ValueError):
        raise ConfigurationError(field, _HIDDEN, f"is not base64; {_ADVICE}") from None
    if len(material) != KEY_SIZE:
        raise ConfigurationError(field, _HIDDEN, f"has {len(material)} bytes; {_ADVICE}")
    return Key(id_, material)


def _decoded(encoded: str) -> bytes:
    plain = encoded.rstrip("=").replace("-", "+").replace("_", "/")
    return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
