"""Queue options: what a `QueueSpec` asks of a queue in objects, validated. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final
from urllib.parse import quote

import attrs

from pump.capabilities import OrderingMode
from pump.errors import ConfigurationError
from pump.subscription import QueueSpec

from .layout import Layout, QueueFacts

LAYOUT: Final = "layout"
DEDUPLICATION_WINDOW: Final = "deduplication_window"
MAX_NAME_BYTES: Final = 500
"""Encoded: a key has 1,024 bytes, of which a prefix and the rest of the key want some."""


@attrs.frozen(kw_only=True)
class Wanted:
    """What is asked of a queue; what it does not say fits any queue."""

    spec: QueueSpec
    layout: Layout | None
    window_s: float | None
    is_name_only: bool
    """Only the name counts, as that of a rejection target: whatever the queue is like will do."""

    @classmethod
    def from_spec(cls, spec: QueueSpec) -> Wanted:
        """Translate a spec; `ConfigurationError` names the field that cannot work."""
        _check_name(spec.name)
        if spec.ordering_guarantee and spec.ordering is OrderingMode.LIFO:
            raise ConfigurationError(
                "QueueSpec.ordering_guarantee",
                True,
                "newest-first has no order to guarantee; use FIFO, or drop the guarantee",
            )
        _check_redrive(spec)
        _check_options(spec.options)
        wanted = cls(
            spec=spec,
            layout=_layout(spec.options.get(LAYOUT)),
            window_s=_window_s(spec.options.get(DEDUPLICATION_WINDOW)),
            is_name_only=spec == QueueSpec(name=spec.name),
        )
        if wanted.layout is not None:
            wanted.facts(wanted.layout)
        return wanted

    def facts(self, layout: Layout) -> QueueFacts:
        """What the queue is to be like if it is kept this way."""
        if layout is Layout.LEASES and self.window_s:
            raise ConfigurationError(
                f"QueueSpec.options[{DEDUPLICATION_WINDOW!r}]",
                self.spec.options[DEDUPLICATION_WINDOW],
                f"the layout 'leases' knows no duplicates; ask for {LAYOUT}='log'",
            )
        spec = self.spec
        facts = QueueFacts(
            name=spec.name,
            layout=layout,
            is_lifo=spec.ordering is OrderingMode.LIFO,
            is_strict=spec.ordering_guarantee,
            max_receive_count=spec.max_receive_count,
            dead_letter_queue=spec.dead_letter_queue if spec.max_receive_count else None,
        )
        if self.window_s is None:
            return facts
        return attrs.evolve(facts, deduplication_window_s=self.window_s)


def differences(found: QueueFacts, wanted: QueueFacts) -> str:
    """Say in words where a queue departs from what is wanted; empty when it does not."""
    is_, asked = attrs.asdict(found), attrs.asdict(wanted)
    return ", ".join(
        f"{name} is {_shown(is_[name])}, asked for {_shown(asked[name])}"
        for name in is_
        if is_[name] != asked[name]
    )


def _shown(value: object) -> str:
    return repr(value.value if isinstance(value, Layout) else value)


def _check_name(name: str) -> None:
    if not name.strip():
        raise ConfigurationError("QueueSpec.name", name, "name the queue")
    # HTTP clients resolve such names in a path, and the SDK signs what was there before.
    if name in (".", ".."):
        raise ConfigurationError("QueueSpec.name", name, "a name needs more than dots")
    if len(quote(name, safe="", errors="replace")) > MAX_NAME_BYTES:
        remedy = f"use a shorter one: it has {MAX_NAME_BYTES} bytes in a key, as a URL spells it"
        raise ConfigurationError("QueueSpec.name", name, remedy)


def _check_redrive(spec: QueueSpec) -> None:
    limit = spec.max_receive_count
    if limit is None:
        return
    if limit < 1:
        raise ConfigurationError("QueueSpec.max_receive_count", limit, "use 1 or more")
    if not spec.dead_letter_queue or spec.dead_letter_queue == spec.name:
        raise ConfigurationError(
            "QueueSpec.dead_letter_queue",
            spec.dead_letter_queue,
            "max_receive_count needs another queue to move messages to",
        )


def _check_options(options: Mapping[str, Any]) -> None:
    unknown = sorted(set(options) - {LAYOUT, DEDUPLICATION_WINDOW})
    if unknown:
        raise ConfigurationError(
            "QueueSpec.options",
            unknown,
            f"S3 queues know only {LAYOUT!r} and {DEDUPLICATION_WINDOW!r}",
        )


def _layout(value: object) -> Layout | None:
    if value is None:
        return None
    if value not in list(Layout):
        names = " or ".join(repr(layout.value) for layout in Layout)
        raise ConfigurationError(f"QueueSpec.options[{LAYOUT!r}]", value, f"use {names}")
    return Layout(str(value))


def _window_s(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise ConfigurationError(
            f"QueueSpec.options[{DEDUPLICATION_WINDOW!r}]", value, "use seconds, 0 for none"
        )
    return float(value)
