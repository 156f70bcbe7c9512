"""Queue settings: what a `QueueSpec` means to this engine, validated."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import attrs

from pump.capabilities import OrderingMode
from pump.errors import ConfigurationError
from pump.subscription import QueueSpec

DEDUPLICATION_WINDOW = "deduplication_window"
DEFAULT_WINDOW_S = 300.0


@attrs.frozen(kw_only=True)
class EngineSettings:
    """How one queue behaves. Changing them while messages are in the queue is allowed."""

    name: str
    is_lifo: bool = False
    is_strict: bool = False
    max_receive_count: int | None = None
    dead_letter_queue: str | None = None
    deduplication_window_s: float = DEFAULT_WINDOW_S

    @classmethod
    def from_spec(cls, spec: QueueSpec) -> EngineSettings:
        """Translate a spec; `ConfigurationError` names the field that cannot work."""
        if not spec.name.strip():
            raise ConfigurationError("QueueSpec.name", spec.name, "name the queue")
        if spec.ordering_guarantee and spec.ordering is OrderingMode.LIFO:
            raise ConfigurationError(
                "QueueSpec.ordering_guarantee",
                True,
                "newest-first has no order to guarantee; use FIFO, or drop the guarantee",
            )
        _check_redrive(spec)
        return cls(
            name=spec.name,
            is_lifo=spec.ordering is OrderingMode.LIFO,
            is_strict=spec.ordering_guarantee,
            max_receive_count=spec.max_receive_count,
            dead_letter_queue=spec.dead_letter_queue if spec.max_receive_count else None,
            deduplication_window_s=_window_s(dict(spec.options)),
        )

    def differences(self, other: EngineSettings) -> str:
        """Say in words where `other` departs from these; empty when they are equal."""
        ours, theirs = attrs.asdict(self), attrs.asdict(other)
        return ", ".join(
            f"{name} is {ours[name]!r}, asked for {theirs[name]!r}"
            for name in ours
            if ours[name] != theirs[name]
        )


def is_bare(spec: QueueSpec) -> bool:
    """Whether a spec only asks that the queue exists, as that of a rejection target does."""
    return spec == QueueSpec(name=spec.name)


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


def _window_s(options: dict[str, Any]) -> float:
    window = options.pop(DEDUPLICATION_WINDOW, DEFAULT_WINDOW_S)
    if options:
        raise ConfigurationError(
            "QueueSpec.options",
            sorted(options),
            f"this gateway knows only {DEDUPLICATION_WINDOW!r} (seconds, or a timedelta)",
        )
    if isinstance(window, timedelta):
        return window.total_seconds()
    if isinstance(window, bool) or not isinstance(window, int | float) or window < 0:
        raise ConfigurationError(
            f"QueueSpec.options[{DEDUPLICATION_WINDOW!r}]", window, "use seconds, 0 for none"
        )
    return float(window)
