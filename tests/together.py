"""One test for many things of a kind: all are looked at, and those that fail reported together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

Naming = Callable[[str], AbstractContextManager[None]]


@contextmanager
def together() -> Iterator[Naming]:
    """Give what each single check is to be entered with; fail at the end, naming each that failed.

    Nothing to look at is a failure too, as an empty list of parameters is a skipped test.
    """
    looked_at: list[str] = []
    failed: list[str] = []

    @contextmanager
    def each(name: str) -> Iterator[None]:
        looked_at.append(name)
        try:
            yield
        # broad: whatever goes wrong is reported, with the name of what it went wrong for.
        except (Exception, pytest.fail.Exception) as error:
            kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            failed.append(f"{name}: {kind}{error}")

    yield each
    assert looked_at, "nothing was looked at"
    if failed:
        said = "\n\n".join(failed)
        pytest.fail(f"{len(failed)} of {len(looked_at)} failed.\n{said}", pytrace=False)
