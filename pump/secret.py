"""Secrets: keys, passwords and tokens that no text, log or serialisation shows by accident.

| what is done with one                                     | what comes out                |
|-----------------------------------------------------------|-------------------------------|
| `repr`, `str`, `format`, f-strings, `%`, logging          | `…`, whatever the format      |
| `json` with `default=str`, structlog, rich                | the same                      |
| `attrs.asdict`, `vars`, `copy`, cattrs                    | the `Secret` itself           |
| `json`, msgspec and YAML without a hook                   | a `TypeError`: not told       |
| `pickle` (protocol 4 and newer, which is the default)     | the secret, for Spark's workers |
| `reveal()`                                                | the secret, on purpose        |

Settings travel to other processes by pickle, and must work there: so a pickle of settings is as
secret as they are.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Any, Final, Self

_HIDDEN: Final = "…"
_OLDEST_PROTOCOL: Final = 4
"""What `copy` asks for, and the least of what pickles are written in. Serialisers that show what
they write (YAML, jsonpickle) ask for 2."""


class Secret:
    """Text that is shown nowhere; `reveal` gives it. Compared in constant time, also with text."""

    __slots__ = ("__value",)

    def __init__(self, value: str) -> None:
        if not isinstance(value, str):
            raise TypeError(f"a secret is text, not {type(value).__name__}")
        self.__value = value

    def reveal(self) -> str:
        """The secret itself, to send it or sign with it."""
        return self.__value

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Secret):
            other = other.__value
        if not isinstance(other, str):
            return NotImplemented
        return hmac.compare_digest(_octets(self.__value), _octets(other))

    def __hash__(self) -> int:
        return hash(self.__value)

    def __bool__(self) -> bool:
        return bool(self.__value)

    def __repr__(self) -> str:
        return f"Secret({_HIDDEN})"

    def __str__(self) -> str:
        return _HIDDEN

    def __format__(self, spec: str) -> str:
        return _HIDDEN

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce_ex__(self, protocol: Any) -> tuple[Callable[[str], Secret], tuple[str]]:
        if protocol < _OLDEST_PROTOCOL:
            raise TypeError(
                f"a secret is not written in protocol {protocol}, as YAML is; "
                f"pickle it with {_OLDEST_PROTOCOL} or newer, or reveal() it on purpose"
            )
        return type(self), (self.__value,)


def secret(value: str | Secret) -> Secret:
    """For a field of settings: text becomes a secret; what is neither, its check refuses."""
    return Secret(value) if isinstance(value, str) else value


def optional_secret(value: str | Secret | None) -> Secret | None:
    """The same for a field that may be left out."""
    return Secret(value) if isinstance(value, str) else value


def revealed(value: Secret | None) -> str | None:
    """The secret itself, None for none."""
    return None if value is None else value.reveal()


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
