"""Catalogue of what grows: messages, subscriptions, messages in flight."""

from __future__ import annotations

from collections.abc import Mapping

from ..contender import Contender, Group

_ROUNDS = 3
_SHARE = 2.0
"""Of the messages, where something else grows: at the default, a hundred thousand."""
_MESSAGES = {0.2: "10k", 2.0: "100k", 20.0: "1m"}
_SUBSCRIPTIONS = (1, 10, 100)
_IN_FLIGHT = (1, 64, 512)


def _contender(
    name: str, title: str, share: float, options: Mapping[str, float], note: str = ""
) -> Contender:
    return Contender(
        name=f"growth-{name}",
        title=title,
        group=Group.GROWTH,
        module="growth_memory",
        share=share,
        max_rounds=_ROUNDS,
        options=options,
        note=note,
    )


SERIES: Mapping[str, tuple[Contender, ...]] = {
    "messages": tuple(
        _contender(f"messages-{name}", "messages", share, {}) for share, name in _MESSAGES.items()
    ),
    "subscriptions": tuple(
        _contender(
            f"subscriptions-{count}",
            f"{count} subscription{'s' if count > 1 else ''}",
            _SHARE,
            {"subscriptions": count, "queued": 100},
            "at most 100 messages in a queue",
        )
        for count in _SUBSCRIPTIONS
    ),
    "in flight": tuple(
        _contender(
            f"in-flight-{count}",
            f"{count} in flight",
            _SHARE,
            {"concurrency": count, "is_held": True},
            "handlers wait for one another",
        )
        for count in _IN_FLIGHT
    ),
}
"""Each from the smallest to the largest."""
GROWTH_CONTENDERS = tuple(each for series in SERIES.values() for each in series)
