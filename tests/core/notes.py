"""A second subscription beside a rig's own, and what no gateway should raise."""

from __future__ import annotations

from typing import Any

from pump import Command, Subscription

from .rig import Rig


class Note(Command):
    """Something to write down."""

    n: int


class Defect(RuntimeError):
    """What no gateway should raise."""


def with_notes(rig: Rig, **fields: Any) -> list[int]:
    """A second subscription, whose handler notes what it got."""
    noted: list[int] = []

    async def note(request: Note) -> None:
        noted.append(request.n)

    rig.app.register(Note, note)
    rig.app.subscribe(Subscription(queue="notes", request=Note, **fields))
    return noted
