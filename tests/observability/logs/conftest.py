"""Logging as `pump run` sets it up, put back afterwards, and what was written."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog

from pump.cli.session import set_up_logging
from pump.observability.sampling import sample_deliveries


@pytest.fixture(autouse=True)
def _logging_is_put_back() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers = []
    yield
    root.handlers = handlers
    root.setLevel(level)
    sample_deliveries(1)
    structlog.reset_defaults()


class Written(io.StringIO):
    """What was written to stderr; each write by itself, too."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []

    def write(self, text: str, /) -> int:
        self.writes.append(text)
        return super().write(text)

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The lines, which are JSON each."""
        return [json.loads(line) for line in self.getvalue().splitlines()]

    def lines_of(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == event]


SetUp = Callable[..., Written]


@pytest.fixture
def set_up(monkeypatch: pytest.MonkeyPatch) -> SetUp:
    """Sets logging up as the command line does, on a stderr that can be read."""

    def set_up(level: str = "info", format: str = "json", *, sample: int = 1) -> Written:
        written = Written()
        monkeypatch.setattr(sys, "stderr", written)
        set_up_logging(level, format, sample=sample)
        return written

    return set_up
