"""Pacing: how many messages a run sends, and when each is due. Pure.

| asked for                | sent                       | latency counts from                    |
|--------------------------|----------------------------|----------------------------------------|
| no rate                  | all, before any is handled | the send: it includes the queue's      |
|                          |                            | whole backlog                          |
| a rate                   | one every 1/rate seconds   | the moment it was due, so a send that  |
|                          | while others are handled   | comes late is not forgiven             |
"""

from __future__ import annotations

from math import floor

import attrs

from ..errors import ConfigurationError

_TICK_S = 0.002
"""Messages that are due within so long go out together: timers are no finer on a busy machine."""


@attrs.frozen(kw_only=True)
class Load:
    """What is sent."""

    messages: int
    """The most that are sent."""
    rate: float | None = None
    """Messages a second; None to have all of them wait before the first is handled."""
    limit_s: float = 30.0
    """The most that sending takes, and handling after the last send."""
    groups: int = 0
    """Over how many ordering groups they are spread; 0 for messages without one."""

    def __attrs_post_init__(self) -> None:
        _check(self.messages >= 1, "messages", self.messages, "use 1 or more")
        _check(self.rate is None or self.rate > 0, "rate", self.rate, "use more than 0")
        _check(self.limit_s > 0, "limit_s", self.limit_s, "use more than 0")
        _check(self.groups >= 0, "groups", self.groups, "use 0 or more")

    @property
    def total(self) -> int:
        """How many can be sent within the limit, at the rate."""
        if self.rate is None:
            return self.messages
        return max(1, min(self.messages, floor(self.rate * self.limit_s)))

    def due_at_s(self, number: int) -> float:
        """When, after the start, the message of this number is due; the first is number 0."""
        return 0.0 if self.rate is None else number / self.rate

    def due_count(self, elapsed_s: float) -> int:
        """How many are due by now."""
        if self.rate is None:
            return self.total
        return min(self.total, floor(max(0.0, elapsed_s) * self.rate) + 1)

    def pause_s(self, sent: int, elapsed_s: float) -> float:
        """How long to wait before the next are sent."""
        return max(_TICK_S, self.due_at_s(sent) - elapsed_s)

    def group(self, number: int) -> str | None:
        """The ordering group of the message of this number."""
        return f"bench-{number % self.groups}" if self.groups else None


def _check(condition: bool, field: str, value: object, remedy: str) -> None:
    if not condition:
        raise ConfigurationError(f"Load.{field}", value, remedy)
