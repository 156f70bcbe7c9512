"""An entry of the file, read key by key; what is wrong is noted and reading goes on."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from enum import Enum
from importlib import import_module
from math import isfinite, nan
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs

from pump.clock import parse_duration
from pump.errors import ConfigurationError

T = TypeVar("T")
Read = Callable[[object], T]


class Unusable(ValueError):
    """A value that cannot work; its text is the remedy."""


class Entry:
    """A table of the file, with the path to it. `problems` is shared by the whole file."""

    def __init__(self, values: Mapping[str, Any], path: str, problems: list[Problem]) -> None:
        self._values = values
        self._path = path
        self._problems = problems
        self._known: list[str] = []

    def take(self, key: str, read: Read[T], default: T) -> T:
        """The value of an optional key; the default as well when what is there cannot work."""
        self._known.append(key)
        value = self._values.get(key, ABSENT)
        if value is ABSENT:
            return default
        try:
            return read(value)
        except Unusable as problem:
            self.note(key, str(problem))
            return default

    def require(self, key: str, read: Read[T], remedy: str) -> T | None:
        """The value of a key that must be there; None, and a problem noted, when it is not."""
        self._known.append(key)
        if key not in self._values:
            self.note(key, remedy)
            return None
        return self.take(key, read, None)

    def note(self, key: str, remedy: str) -> None:
        """Something is wrong with this key, whether or not it is there."""
        value = self._values.get(key, ABSENT)
        self._problems.append(Problem(self.path_of(key), value, remedy))

    def path_of(self, key: str) -> str:
        """`mappings[1].batch_size` for `batch_size`."""
        return f"{self._path}.{key}" if self._path else key

    def finish(self) -> None:
        """Name every key that was not read."""
        for key in self._values:
            if key not in self._known:
                self.note(key, unknown_key(key, self._known))


def unknown_key(key: object, known: list[str]) -> str:
    """The remedy for a key that means nothing: the one that was probably meant."""
    close = get_close_matches(str(key), known, n=1)
    if close:
        return f"there is no such key; did you mean {close[0]}?"
    return f"there is no such key; use one of {', '.join(sorted(set(known)))}"


def table(value: object) -> Mapping[str, Any]:
    """A table with keys of text; an empty entry of YAML is an empty table."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Unusable("write a table of keys and values here")
    for key in value:
        if not isinstance(key, str):
            raise Unusable(f"the key {key!r} is not text; put it in quotes")
    return value


def text(value: object) -> str:
    """Some text, not empty."""
    if not isinstance(value, str) or not value.strip():
        raise Unusable("write some text")
    return value


def flag(value: object) -> bool:
    """Yes or no, as the file's format writes it."""
    if not isinstance(value, bool):
        raise Unusable("write true or false")
    return value


def whole(least: int, most: int) -> Read[int]:
    """A whole number within limits."""

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise Unusable(f"use a whole number from {least} to {most}")
        return value

    return read


def seconds(least: int, most: int) -> Read[int]:
    """A duration within limits, in whole seconds: a number of them, or text such as 30s or 2m."""

    def read(value: object) -> int:
        found = _seconds_in(value)
        if not found.is_integer():
            raise Unusable("SQS counts in whole seconds; leave out the rest")
        if not least <= found <= most:
            raise Unusable(f"use {least} to {most} seconds, as a number or as 30s, 2m, 1h30m")
        return int(found)

    return read


def _seconds_in(value: object) -> float:
    if isinstance(value, str):
        try:
            return parse_duration(value).total_seconds()
        except ValueError as error:
            raise Unusable(str(error)) from None
    try:
        found = nan if isinstance(value, bool | None) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        found = nan
    if not isfinite(found):
        raise Unusable("write a duration: a number of seconds, or text such as 30s, 2m, 1h30m")
    return found


# What is wrong with a configuration file: every problem, each with its key and its remedy.


class Absent(Enum):
    """What a key has that is not there; a value of its own, because null is one too."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT
_MAX_SHOWN: Final = 80


@attrs.frozen
class Problem:
    """One entry that cannot work: where it stands (`mappings[1].batch_size`), what, what to do."""

    key: str
    value: object
    remedy: str

    def __str__(self) -> str:
        if self.value is ABSENT:
            return f"{self.key} is missing: {self.remedy}"
        return f"{self.key} = {_shorten(repr(self.value))}: {self.remedy}"


@attrs.frozen
class InvalidLocalConfig(ConfigurationError):
    """A configuration file with entries that cannot work.

    `field`, `value` and `remedy` are those of the first problem; the text names them all.
    """

    problems: tuple[Problem, ...] = ()

    @classmethod
    def of(cls, file: str, problems: Sequence[Problem]) -> InvalidLocalConfig:
        """The error for one file; there is at least one problem."""
        first = problems[0]
        return cls(f"{file}: {first.key}", first.value, first.remedy, tuple(problems))

    @property
    def file(self) -> str:
        """Which file it is about."""
        return self.field.removesuffix(f": {self.problems[0].key}")

    def __str__(self) -> str:
        if len(self.problems) == 1:
            return f"{self.file}: {self.problems[0]}"
        lines = "".join(f"\n  {problem}" for problem in self.problems)
        return f"{self.file}: {len(self.problems)} entries cannot work:{lines}"


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"


# Files: TOML or YAML, by its ending, to plain values; or an error that says where it broke.

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
