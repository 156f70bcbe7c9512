"""Crew: the processes of one run, as those see them who answer for all.

`crew_probes.py` reads it, `crew_control.py` has it do things; `crew_report.py` has the sums.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Protocol

import attrs

from .crew_report import Counts, ProcessReport, ProcessState
from .metrics_sum import Families
from .standing import Order
from .wire import Answer, Request


class Member(Protocol):
    """A place in the crew, and the process that has it."""

    def report(self) -> ProcessReport:
        """How it is, as far as that is known without asking it."""

    async def ask(self, request: Request) -> Answer | None:
        """Its answer; None when no process is there that can answer, or when it takes longer
        than a probe can wait. A request to change something is sent to one that starts, too.
        """


class Crew(Protocol):
    """All processes of a run."""

    @property
    def is_draining(self) -> bool:
        """Whether all were told to end."""

    def counted(self) -> Counts:
        """What all had done when each was last heard of, those that have ended too."""

    def measured(self) -> Families:
        """Their metrics, in the same way."""

    def members(self) -> Sequence[Member]:
        """Those that have a place, and those that leave it."""

    def drain(self) -> None:
        """Have all of them finish what they started, and end."""

    def order(self, subscription: str, order: Order | None = None) -> Order:
        """What a process to come will be told of a subscription; changed when `order` is given."""


def is_leaving(member: Member) -> bool:
    """Whether it drains, and ends."""
    return member.report().state is ProcessState.LEAVING


async def ask_all(
    members: Iterable[Member], request: Request
) -> list[tuple[ProcessReport, Answer | None]]:
    """What each of them answers, all asked at once."""
    asked = list(members)
    answers = await asyncio.gather(*(each.ask(request) for each in asked))
    return [(each.report(), answer) for each, answer in zip(asked, answers, strict=True)]


async def reports(members: Iterable[Member], path: str) -> list[ProcessReport]:
    """How each of them is, with the document it answers to this path."""
    request = Request(method="GET", path=(path,))
    return [
        attrs.evolve(report, found=None if answer is None else answer.document())
        for report, answer in await ask_all(members, request)
    ]
