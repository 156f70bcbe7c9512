"""The saboteurs, by what they spoil. Each breaks one law and keeps all others."""

from __future__ import annotations

from . import (
    administration,
    claims,
    durability,
    leases,
    ordering,
    receiving,
    redrive,
    resilience,
    sending,
    session_locks,
    sessions,
    settling,
)
from .base import Saboteur

__all__ = ["SABOTEURS", "Saboteur"]

_MODULES = (
    sending,
    receiving,
    settling,
    leases,
    ordering,
    redrive,
    administration,
    durability,
    sessions,
    session_locks,
    claims,
    resilience,
)

SABOTEURS: tuple[type[Saboteur], ...] = tuple(
    saboteur
    for module in _MODULES
    for saboteur in vars(module).values()
    if isinstance(saboteur, type)
    and issubclass(saboteur, Saboteur)
    and saboteur.__module__ == module.__name__
)
