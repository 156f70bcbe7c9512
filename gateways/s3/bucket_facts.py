"""Bucket facts: what a bucket does with objects by itself. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs


@attrs.frozen(kw_only=True)
class Rule:
    """A lifecycle rule that is in force, as far as it matters here."""

    id: str
    prefix: str
    expires: bool = False
    """Removes objects that are in use."""
    moves: bool = False
    """Moves them where reading is dear, slow, or impossible."""
    clears_versions: bool = False
    """Removes versions that were replaced."""

    def concerns(self, prefix: str) -> bool:
        """Whether it is for an object below this prefix."""
        return prefix.startswith(self.prefix) or self.prefix.startswith(prefix)


@attrs.frozen(kw_only=True)
class BucketFacts:
    """What the bucket says of itself; None and nothing where it does not."""

    is_versioned: bool | None = None
    rules: tuple[Rule, ...] = ()
    denied: tuple[str, ...] = ()
    """Permissions that were lacking to ask."""


def rules_of(lines: Iterable[Mapping[str, Any]]) -> tuple[Rule, ...]:
    """The rules that are in force for our objects, which have no tags."""
    return tuple(
        rule
        for line in lines
        if line.get("Status") == "Enabled" and (rule := _rule(line)) is not None
    )


def _rule(line: Mapping[str, Any]) -> Rule | None:
    chosen = line.get("Filter") or {}
    both = chosen.get("And") or {}
    if "Tag" in chosen or both.get("Tags"):
        return None
    expiration = line.get("Expiration") or {}
    return Rule(
        id=str(line.get("ID", "")),
        prefix=str(both.get("Prefix") or chosen.get("Prefix") or line.get("Prefix") or ""),
        expires="Days" in expiration or "Date" in expiration,
        moves=bool(line.get("Transitions") or line.get("Transition")),
        clears_versions=bool(line.get("NoncurrentVersionExpiration")),
    )
