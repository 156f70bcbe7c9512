"""Options in the query of a URL, converted to the types of the settings they set; and the login
before several hosts.

A gateway names the field of its settings class that each option sets, and nothing else: the
field's annotation says how the text is read. What a value must be beyond that (its range, what it
excludes) the settings class checks, as it does for values that are given in code.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import NoneType
from typing import Any, get_args, get_type_hints
from urllib.parse import parse_qsl

import msgspec

from .errors import ConfigurationError
from .secret import Secret

_HIDDEN = "…"


def url_options(
    query: str, shown: str, settings: type, fields: Mapping[str, str]
) -> dict[str, Any]:
    """The fields that a query gives; those of nested settings are in a dict of their own.

    `fields` has the field for each option: `"domain"`, or `"aws.profile"` for one of the settings
    that the field `aws` holds. An option that is given twice counts as it was given last.

    Raises:
        ConfigurationError: For an option that is not known, or whose text does not fit its field.
            It calls the URL `shown`, and repeats nothing that may belong to a password.
    """
    given = dict(parse_qsl(query, keep_blank_values=True))
    # A password with a question mark in it ends here: what looks like an option is a part of it.
    is_torn = "@" in query
    if unknown := sorted(set(given) - set(fields)):
        named = _HIDDEN if is_torn else ", ".join(unknown)
        raise ConfigurationError("gateway", shown, f"unknown {named}; known: {', '.join(fields)}")
    found: dict[str, Any] = {}
    for option, text in given.items():
        kind = _kind_of(settings, fields[option])
        try:
            value = msgspec.convert(text, kind, strict=False)
        except ValueError:
            said = _HIDDEN if is_torn else repr(text)
            remedy = f"{option}={said}: use {_wanted(kind, fields[option])}"
            raise ConfigurationError("gateway", shown, remedy) from None
        *above, field = fields[option].split(".")
        _inner(found, above)[field] = value
    return found


def login_and_hosts(netloc: str, shown: str) -> tuple[str, str]:
    """The login (`user:password`, as it is written) and the hosts, with commas between them.

    Clients of several brokers repeat the login for each host. That is read if it is the same.

    Raises:
        ConfigurationError: For logins that differ. It calls the URL `shown`.
    """
    login, _, hosts = netloc.rpartition("@")
    if "@" not in login or "," not in login:
        return login, hosts
    repeated = [each.rpartition("@") for each in netloc.split(",")]
    logins = {login for login, at, _ in repeated if at}
    if len(logins) > 1:
        remedy = "all hosts take one login; write @ and , in a password as %40 and %2C"
        raise ConfigurationError("gateway", shown, remedy)
    return logins.pop(), ",".join(host for _, _, host in repeated)


def _kind_of(settings: type, path: str) -> Any:
    """The annotation of a field, for text: without None, which a URL says by saying nothing."""
    kind: Any = settings
    for field in path.split("."):
        kind = get_type_hints(kind)[field]
        kinds = [each for each in get_args(kind) if each is not NoneType]
        kind = kinds[0] if kinds else kind
    return str if kind is Secret else kind


def _inner(found: dict[str, Any], path: list[str]) -> dict[str, Any]:
    for field in path:
        found = found.setdefault(field, {})
    return found


def _wanted(kind: Any, path: str) -> str:
    if kind is bool:
        return "true or false"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return " or ".join(str(each.value) for each in kind)
    number = "a whole number" if kind is int else "a number"
    return f"{number} of seconds" if path.endswith("_s") else number
