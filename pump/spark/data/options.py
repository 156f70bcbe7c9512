"""Options of the format "pump": read from Spark's text, checked before anything is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import attrs

from ...clock import SYSTEM_CLOCK, parse_duration
from ...errors import ConfigurationError
from ...gateway_url import gateway_from_url, without_secrets
from ...ports import Gateway

# Spark's own, which it hands on with ours.
_SPARKS = ("path", "checkpointlocation", "queryname")
_Reads = Mapping[str, tuple[str, Callable[[str], Any]]]
"""By field, the option's name and what reads it."""


@attrs.frozen(kw_only=True)
class QueueReference:
    """A queue and the way to it. The URL may hold a secret, and reaches no repr."""

    url: str = attrs.field(repr=False)
    queue: str

    def gateway(self) -> Gateway:
        """The gateway, not yet open."""
        return gateway_from_url(self.url, SYSTEM_CLOCK)


@attrs.frozen(kw_only=True)
class SnapshotOptions:
    """What a batch read is told."""

    place: QueueReference
    max_count: int | None = None
    lease: timedelta = timedelta(minutes=2)


@attrs.frozen(kw_only=True)
class StreamOptions:
    """What a stream is told."""

    place: QueueReference
    spool: Path
    max_per_batch: int = 10_000
    """The most messages of one micro-batch."""
    wait: timedelta = timedelta(seconds=5)
    """How long one look waits for the first message."""
    linger: timedelta = timedelta(seconds=1)
    """How long a batch that has a message waits for more."""
    lease: timedelta = timedelta(minutes=2)
    """How long a message is hidden from others until it is spooled and acked."""
    retain: timedelta = timedelta(minutes=10)
    """How long a segment is kept at least, also when Spark is done with it."""


@attrs.frozen(kw_only=True)
class SinkOptions:
    """What a write is told."""

    place: QueueReference
    job: str | None = None
    """Names the ids: the same job writes the same rows under the same ids."""
    lanes: int = 8
    """How many sends of one partition are under way at once."""


def snapshot_options(given: Mapping[str, str], *, is_one_machine: bool) -> SnapshotOptions:
    """The options of `spark.read`; `ConfigurationError` names the one that cannot work."""
    reads: _Reads = {"max_count": ("maxCount", _count), "lease": ("lease", _duration)}
    return SnapshotOptions(
        place=_place(given, is_shared_enough=is_one_machine), **_read(given, reads)
    )


def stream_options(given: Mapping[str, str]) -> StreamOptions:
    """The options of `spark.readStream`. Only the driver receives, so any gateway will do that
    another process can reach.
    """
    reads: _Reads = {
        "spool": ("spool", _folder),
        "max_per_batch": ("maxPerBatch", _count),
        "wait": ("wait", _duration),
        "linger": ("linger", _duration),
        "lease": ("lease", _duration),
        "retain": ("retain", _duration),
    }
    values = _read(given, reads)
    if "spool" not in values:
        raise ConfigurationError(
            "spool", None, "name a folder that the driver and all executors see"
        )
    for field in ("lease", "wait"):
        if values.get(field) == timedelta(0):
            raise ConfigurationError(field, given[field], "use more than zero")
    return StreamOptions(place=_place(given, is_shared_enough=True), **values)


def sink_options(given: Mapping[str, str], *, is_one_machine: bool) -> SinkOptions:
    """The options of `df.write` and `df.writeStream`."""
    reads: _Reads = {"job": ("job", _name), "lanes": ("lanes", _count)}
    return SinkOptions(place=_place(given, is_shared_enough=is_one_machine), **_read(given, reads))


def _read(given: Mapping[str, str], reads: _Reads) -> dict[str, Any]:
    names = {"gateway", "queue", *(name for name, _ in reads.values())}
    known = {name.lower() for name in names}
    for name in given:
        if name.lower() not in known and name.lower() not in _SPARKS:
            raise ConfigurationError(
                "option", name, f"there is no such option here; use {', '.join(sorted(names))}"
            )
    values = {}
    for field, (name, read) in reads.items():
        if name in given:
            try:
                values[field] = read(given[name])
            except ValueError as error:
                raise ConfigurationError(name, given[name], str(error)) from None
    return values


def _place(given: Mapping[str, str], *, is_shared_enough: bool) -> QueueReference:
    url, queue = given.get("gateway", ""), given.get("queue", "")
    if not url.strip():
        raise ConfigurationError("gateway", url, "name the broker, such as sqs://eu-west-1")
    if not queue.strip():
        raise ConfigurationError("queue", queue, "name a queue")
    place = QueueReference(url=url, queue=queue)
    can = place.gateway().capabilities
    if not can.is_shared:
        remedy = (
            f"the queues of {can.gateway} live in one process, and Spark's workers are others; "
            f"use a broker, such as `pump local`: sqs://eu-west-1?endpoint=http://…"
        )
        raise ConfigurationError("gateway", without_secrets(url), remedy)
    if not can.spans_machines and not is_shared_enough:
        remedy = (
            f"the queues of {can.gateway} live on one machine, and Spark's workers may be on "
            f"others; serve them with `pump local`, and use sqs://eu-west-1?endpoint=http://…"
        )
        raise ConfigurationError("gateway", without_secrets(url), remedy)
    return place


def _count(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise ValueError("use a whole number, 1 or more")
    return int(text)


def _duration(text: str) -> timedelta:
    return parse_duration(text)


def _name(text: str) -> str:
    if not text.strip():
        raise ValueError("give it a name, or leave it out")
    return text


def _folder(text: str) -> Path:
    parts = urlsplit(text)
    if parts.scheme not in ("", "file") or parts.netloc not in ("", "localhost"):
        raise ValueError(
            "use a folder of a file system that the driver and all executors have mounted"
        )
    path = Path(unquote(parts.path) if parts.scheme else text)
    if not path.is_absolute():
        # Spark's Python processes have working folders of their own.
        raise ValueError("use an absolute path")
    return path
