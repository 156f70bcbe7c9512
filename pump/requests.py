"""Requests: what handlers receive. `Command` asks one handler to act, `Event` tells many.

Subclassing is enough, the subclass becomes a frozen attrs class:

    class PlaceOrder(Command):
        order_id: str
        quantity: int = 1

pydantic and msgspec models, dataclasses and other attrs classes may be requests too; they need
no base class of ours.
"""

from __future__ import annotations

from typing import Any, dataclass_transform

import attrs


@dataclass_transform(frozen_default=True, field_specifiers=(attrs.field,))
class _Request:
    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # slots=False, because a slotted attrs class is a new class object, which
        # __init_subclass__ cannot hand back.
        attrs.frozen(slots=False)(cls)


class Command(_Request):
    """An instruction to do one thing; exactly one handler carries it out."""


class Event(_Request):
    """A fact that something happened; every handler that cares is told."""
