"""What is wrong with a configuration file: every problem, each with its key and its remedy."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final

import attrs

from pump.errors import ConfigurationError


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
