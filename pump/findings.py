"""Findings: what the doctor says, one at a time; gateways say them too (`ports.Examiner`)."""

from __future__ import annotations

from enum import StrEnum

import attrs

from .errors import ConfigurationError, PumpError


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    """It works, but not as one would wish."""
    ERROR = "error"
    """It does not work."""


@attrs.frozen
class Finding:
    """One thing that was looked at, how it is, and what would make it better."""

    level: Level
    subject: str
    detail: str
    remedy: str = ""


def ok(subject: str, detail: str, remedy: str = "") -> Finding:
    """All is well; a remedy says how to have more."""
    return Finding(Level.OK, subject, detail, remedy)


def warning(subject: str, detail: str, remedy: str) -> Finding:
    """It works, with a drawback."""
    return Finding(Level.WARNING, subject, detail, remedy)


def error(subject: str, detail: str, remedy: str = "") -> Finding:
    """It does not work."""
    return Finding(Level.ERROR, subject, detail, remedy)


def error_from(subject: str, fault: PumpError) -> Finding:
    """What an error of ours says, its remedy apart from what happened."""
    if isinstance(fault, ConfigurationError):
        return error(subject, f"{fault.field}={fault.value!r} cannot work", fault.remedy)
    return error(subject, *str(fault).split("; ", 1))


# Handler times: how long a subscription's handlers took, as far as a running pump has seen.


@attrs.frozen(kw_only=True)
class HandlerTimes:
    """A summary of one process's deliveries since it started; percentiles err upwards, by 19 %
    at most.
    """

    count: int
    """How many deliveries were handled to their end."""
    mean_s: float
    p50_s: float
    p99_s: float
    max_s: float
    lost_count: int = 0
    """How many leases ended before their message was settled. Their handlers were stopped, so
    how long those would have taken is not known."""
    observed_at_s: float
    """Unix time of the summary."""
