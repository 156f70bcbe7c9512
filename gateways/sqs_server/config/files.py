"""Files: TOML or YAML, by its ending, to plain values; or an error that says where it broke."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from pump.errors import ConfigurationError

_MAX_VALUES: Final = 100_000
_MAX_BITS: Final = 8_192  # Python writes numbers of up to 4,300 digits, which are 14,284 bits
_MAX_DEPTH: Final = 100
_CONSTRUCTOR_ERRORS: Final = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""What PyYAML lets out for a date that is none, a tag that does not fit, and deep nesting."""


def read_file(path: Path) -> Mapping[str, Any]:
    """The table that the file holds. Raises ConfigurationError when it cannot be read."""
    parse = _PARSERS.get(path.suffix.lower())
    if parse is None:
        raise ConfigurationError(
            "config", str(path), f"name it with one of the endings {', '.join(_PARSERS)}"
        )
    values = parse(path, _text_of(path))
    if values is None:
        return {}
    _check_bounds(path, values)
    if not isinstance(values, dict):
        raise ConfigurationError(
            str(path), type(values).__name__, "begin the file with `queues:` or `mappings:`"
        )
    return values


def _check_bounds(path: Path, values: object) -> None:
    """Refuse what could not even be shown: YAML's aliases make a few lines endless, dotted keys
    make a line deep, and both formats take numbers of any length.
    """
    waiting, left = [(values, 0)], _MAX_VALUES
    while waiting:
        value, depth = waiting.pop()
        left -= 1
        if left < 0 or depth > _MAX_DEPTH:
            raise ConfigurationError(
                str(path), "too much", "a table holds itself, or too many others, or too deep"
            )
        if isinstance(value, int) and value.bit_length() > _MAX_BITS:
            raise ConfigurationError(
                str(path), "a number", "this one has thousands of digits; use a shorter one"
            )
        if isinstance(value, dict):
            waiting += [(inner, depth + 1) for inner in (*value, *value.values())]
        elif isinstance(value, list | tuple | set):
            waiting += [(inner, depth + 1) for inner in value]


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            str(path), f"byte {error.start}", "save the file as UTF-8"
        ) from error
    except OSError as error:
        raise ConfigurationError(
            "config", str(path), f"the file cannot be read: {error.strerror}; check its name"
        ) from error


def _parse_toml(path: Path, text: str) -> object:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(str(path), "TOML", f"correct what TOML refuses: {error}") from None


def _parse_yaml(path: Path, text: str) -> object:
    yaml = _import_yaml(path)
    try:
        return yaml.load(text, Loader=_strict_loader(yaml))
    except (yaml.YAMLError, *_CONSTRUCTOR_ERRORS) as error:
        what = " ".join(str(error).split())
        raise ConfigurationError(str(path), "YAML", f"correct what YAML refuses: {what}") from None


def _import_yaml(path: Path) -> Any:
    try:
        return import_module("yaml")
    except ImportError:
        raise ConfigurationError(
            "config",
            str(path),
            "YAML needs the package PyYAML: pip install 'pumphouse[local]', or write it as .toml",
        ) from None


def _strict_loader(yaml: Any) -> Any:
    """YAML's safe types, and no key twice: the earlier of two would be lost without a word."""

    def construct_mapping(loader: Any, node: Any, deep: bool = False) -> Any:
        keys: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key.value, str):
                continue  # a list or a table, which is no key to YAML's safe types either
            if key.tag != "tag:yaml.org,2002:merge" and key.value in keys:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} is there twice", key.start_mark
                )
            keys.add(key.value)
        return yaml.SafeLoader.construct_mapping(loader, node, deep=deep)

    return type("StrictLoader", (yaml.SafeLoader,), {"construct_mapping": construct_mapping})


_PARSERS: Final[Mapping[str, Callable[[Path, str], object]]] = {
    ".yaml": _parse_yaml,
    ".yml": _parse_yaml,
    ".toml": _parse_toml,
}
