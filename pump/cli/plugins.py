"""Plugins: commands that other packages bring, found by entry points and loaded when asked for.

A gateway may have commands of its own, and `pump` imports no gateway. So the help knows their names
and loads nothing, and one that does not load is the error of whoever asks for it, and of nobody
else.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

import click

ENTRY_POINT_GROUP = "pumphouse.commands"
_KNOWN = {"s3": "Estimate what queues on S3 cost."}
"""What the help says of those that come with Pumphouse: to ask them, it would have to load them."""


def plugins() -> dict[str, EntryPoint]:
    """The commands of other packages by name, in the order of their names."""
    found = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    return dict(sorted(found.items()))


def short_help_of(point: EntryPoint) -> str:
    """What the list of commands says of it."""
    return _KNOWN.get(point.name) or f"A command of {_package_of(point)}."


def load(point: EntryPoint) -> click.Command:
    """The command. `ConfigurationError` when its package is broken, with the remedy."""
    from ..errors import ConfigurationError

    field = f"pump {point.name}"
    remedy = f"repair or remove the package {_package_of(point)}, which brings this command"
    try:
        command = point.load()
    except Exception as error:  # broad: whatever a foreign module raises when it is imported
        raise ConfigurationError(
            field, point.value, f"{type(error).__name__}: {error}; {remedy}"
        ) from error
    if not isinstance(command, click.Command):
        raise ConfigurationError(field, point.value, f"it is no click command; {remedy}")
    return command


def _package_of(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.module
