"""Where `pump bench` puts its queues.

A gateway that keeps its queues in a folder gets a folder of its own for the run, on the same disk,
which is removed with everything in it. Elsewhere they are on the app's own gateway, under names of
their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote, unquote

import attrs

from ..app import App
from ..gateway_url import gateway_from_url
from ..ports import Gateway
from .failure import Failure

_LOCAL = "local://"
_DEFAULT_FOLDER = ".pumphouse/queues"
_PREFIX = ".pumphouse-bench-"


@attrs.frozen(eq=False)
class Place:
    """A gateway to measure, not open yet."""

    gateway: Gateway
    keeps_queues: bool
    """Whether a queue that is not removed is still there once the process is gone."""


@contextmanager
def bench_place(app: App) -> Iterator[Place]:
    """Where to measure; a folder that was made for it is gone when the block ends."""
    url = app.gateway_url
    if url is None or not url.startswith(_LOCAL):
        gateway = app.built_gateway()
        yield Place(gateway, keeps_queues=gateway.capabilities.is_shared)
        return
    path, _, query = url.removeprefix(_LOCAL).partition("?")
    settings = f"?{query}" if query else ""
    with _folder_beside(Path(unquote(path) or _DEFAULT_FOLDER)) as folder:
        gateway = gateway_from_url(f"{_LOCAL}{quote(folder)}{settings}", app.clock)
        yield Place(gateway, keeps_queues=False)


def _folder_beside(path: Path) -> TemporaryDirectory[str]:
    beside = _nearest_folder(path)
    try:
        return TemporaryDirectory(prefix=_PREFIX, dir=beside, ignore_cleanup_errors=True)
    except OSError as error:
        raise Failure(
            f"cannot make a folder for the run in {str(beside)!r}: {error.strerror}",
            remedy="make it writable, or measure another gateway: --gateway local://FOLDER",
        ) from None


def _nearest_folder(path: Path) -> Path:
    """The folder above it that is there: the same disk, and nothing to clean up."""
    absolute = path.absolute()
    return next(each for each in absolute.parents if each.is_dir())
