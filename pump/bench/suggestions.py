"""Suggestions: what to change, and why, from what was measured. Pure rules, each on its own.

A rule speaks only when the figures show what it speaks of; most runs end without any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil
from typing import TYPE_CHECKING

import attrs

from ..durations import format_duration

if TYPE_CHECKING:
    from .report import Measured, Settings

_BUSY = 0.8
"""Handlers that run this share of the time leave no room for more messages."""
_CPU_BOUND = 0.85
"""Of one core: Python runs on no more than one at a time."""
_MAX_FACTOR = 8
_SHORT_S = 1.0
_FEW = 10
"""Fewer receives say nothing of their mean."""


@attrs.frozen(kw_only=True)
class Suggestion:
    """What to change, and the figures that say so."""

    setting: str
    advice: str
    reason: str


Rule = Callable[["Measured", "Settings"], Iterator[Suggestion]]


def suggest(measured: Measured, settings: Settings) -> tuple[Suggestion, ...]:
    """Everything the figures say, the most rewarding first."""
    if not measured.handled:
        return ()
    return tuple(found for rule in _RULES for found in rule(measured, settings))


def _lost_leases(measured: Measured, settings: Settings) -> Iterator[Suggestion]:
    if not measured.lost:
        return
    longest_s = measured.run.max_s if measured.run else 0.0
    lease_s = max(2 * settings.lease_s, 3 * longest_s)
    advice = f"use {_seconds(lease_s)}" + ("" if settings.renew else ", or renew=True")
    yield Suggestion(
        setting="lease",
        advice=advice,
        reason=f"{measured.lost:,} lease(s) of {format_duration(settings.lease_s)} ended before "
        f"their message was settled, so it was handled again",
    )


def _unrenewed_lease(measured: Measured, settings: Settings) -> Iterator[Suggestion]:
    if measured.lost or settings.renew or measured.run is None:
        return
    if measured.run.p99_s > settings.lease_s / 2:
        yield Suggestion(
            setting="lease",
            advice=f"use {_seconds(3 * measured.run.p99_s)}, or renew=True",
            reason=f"one message in a hundred takes {format_duration(measured.run.p99_s)}, and "
            f"nobody extends its lease of {format_duration(settings.lease_s)}",
        )


def _much_extended(measured: Measured, settings: Settings) -> Iterator[Suggestion]:
    if measured.run is None or measured.lost or measured.calls.extends * 10 < measured.done:
        return
    yield Suggestion(
        setting="lease",
        advice=f"use {_seconds(max(3 * measured.run.p99_s, 2 * settings.lease_s))}",
        reason=f"{measured.calls.extends:,} calls only extended leases: a longer one makes fewer, "
        f"and the price is that the messages of a process that dies come again later",
    )


def _concurrency(measured: Measured, settings: Settings) -> Iterator[Suggestion]:
    busy = _busy(measured, settings)
    if busy < _BUSY or measured.cpu_share >= _CPU_BOUND or measured.kept_pace:
        return
    reason = (
        f"handlers were busy {busy:.0%} of the time while the processor was used "
        f"{measured.cpu_share:.0%}: they wait for something, and more of them can wait at once"
    )
    if settings.ordering_guarantee and settings.groups <= settings.concurrency:
        some = f"more groups than {settings.groups}" if settings.groups else "a group"
        advice = f"give messages {some} where their order allows it: one of each runs at a time"
        yield Suggestion(setting="ordering_guarantee", advice=advice, reason=reason)
        return
    factor = min(_MAX_FACTOR, max(2.0, _BUSY / max(measured.cpu_share, 0.01)))
    advice = f"try {ceil(settings.concurrency * factor)} instead of {settings.concurrency}"
    yield Suggestion(setting="concurrency", advice=advice, reason=reason)


def _processes(measured: Measured, settings: Settings) -> Iterator[Suggestion]:
    if measured.cpu_share >= _CPU_BOUND and not measured.kept_pace:
        run_more = "run it with `pump run --processes auto`"
        if not settings.is_shared:
            run_more = "several processes need a gateway that they share, such as local://"
        yield Suggestion(
            setting="processes",
            advice=f"{run_more}; more concurrency does not help",
            reason=f"the processor was used {measured.cpu_share:.0%} of one core, which is all "
            f"that one Python process has",
        )


def _prefetch(measured: Measured, settings: Settings) -> Iterator[Suggestion]:
    wanted = settings.concurrency
    is_starved = _busy(measured, settings) < _BUSY and measured.cpu_share < _CPU_BOUND
    if settings.prefetch is None or settings.prefetch >= wanted or not is_starved:
        return
    if measured.rate is not None or settings.ordering_guarantee:
        return
    yield Suggestion(
        setting="prefetch",
        advice=f"leave it out, or use {wanted} instead of {settings.prefetch}",
        reason=f"handlers were busy only {_busy(measured, settings):.0%} of the time although "
        f"messages were waiting: they wait for the next receive",
    )


def _batching(measured: Measured, settings: Settings) -> Iterator[Suggestion]:
    mean = measured.calls.mean_received
    # Where the broker is in this process or on this machine, a call more costs next to nothing.
    if measured.rate is not None or not settings.is_remote or mean is None:
        return
    if measured.calls.receives < _FEW:
        return
    if settings.in_hand >= settings.receive_batch or mean > settings.receive_batch / 2:
        return
    yield Suggestion(
        setting="batching",
        advice=f"let {settings.receive_batch} or more be in hand: concurrency and prefetch "
        f"together are {settings.in_hand}",
        reason=f"a receive brought {mean:.1f} messages of the {settings.receive_batch} it could, "
        f"so the same messages take more calls",
    )


def _behind(measured: Measured, settings: Settings) -> Iterator[Suggestion]:
    if measured.rate is not None and not measured.kept_pace:
        yield Suggestion(
            setting="rate",
            advice="measure without --rate to see how much it can do",
            reason=f"{measured.throughput:,.1f} messages a second were handled of the "
            f"{measured.rate:,.1f} that were due: the queue grows, and latency with it",
        )


def _backlog_latency(measured: Measured, settings: Settings) -> Iterator[Suggestion]:
    if measured.rate is None and measured.throughput >= 2:
        yield Suggestion(
            setting="--rate",
            advice=f"measure latency with --rate {measured.throughput / 2:.0f}",
            reason="all messages waited when the first was handled, so the time from send to "
            "handled is that of a backlog; at half of what it can do it is that of a message",
        )


def _short(measured: Measured, settings: Settings) -> Iterator[Suggestion]:
    if measured.wall_s < _SHORT_S and measured.rate is None:
        more = ceil(measured.throughput * 5 * _SHORT_S / 1000) * 1000
        yield Suggestion(
            setting="--messages",
            advice=f"use --messages {more}",
            reason=f"it was over in {format_duration(measured.wall_s)}: starting up is a good part "
            f"of that",
        )


_RULES: tuple[Rule, ...] = (
    _lost_leases,
    _unrenewed_lease,
    _much_extended,
    _behind,
    _concurrency,
    _processes,
    _prefetch,
    _batching,
    _short,
    _backlog_latency,
)


def _busy(measured: Measured, settings: Settings) -> float:
    """Which share of the handlers that may run at once did run, over the time."""
    if not measured.wall_s:
        return 0.0
    at_once = settings.concurrency
    if settings.ordering_guarantee:
        at_once = min(at_once, max(1, settings.groups))
    return min(1.0, measured.busy_s / (measured.wall_s * at_once))


def _seconds(seconds: float) -> str:
    return f"{ceil(seconds)}s"
