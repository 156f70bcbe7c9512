"""The `queues` of a file: SQS's own limits, and what the entries must agree on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from ..model import FIFO_SUFFIX
from ..settings import MAX_MESSAGE_BYTES
from .entry import Entry, Read, T, Unusable, flag, seconds, table, text, whole
from .model import QueueConfig
from .problems import Problem

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,80}|(?=.{1,80}$)[A-Za-z0-9_-]+\.fifo")
_MAX_TAGS: Final = 50


def queue_name(value: object) -> str:
    """A name that SQS takes."""
    name = text(value)
    if not _NAME.fullmatch(name):
        raise Unusable("use up to 80 letters, digits, - and _; a FIFO queue's name ends with .fifo")
    return name


def read_queues(values: object, problems: list[Problem]) -> tuple[QueueConfig, ...]:
    """Every queue of the file, in its order; what is wrong goes to `problems`."""
    entry = Entry({"queues": values}, "", problems)
    entries: Mapping[str, Any] = entry.take("queues", table, {})
    return tuple(_read_queue(name, content, problems) for name, content in entries.items())


def _read_queue(name: str, content: object, problems: list[Problem]) -> QueueConfig:
    path = f"queues.{name}"
    values: Mapping[str, Any] = {}
    try:
        queue_name(name)
        values = table(content)
    except Unusable as problem:
        problems.append(Problem(path, content, str(problem)))
    entry = Entry(values, path, problems)
    _check_kind(entry, name)
    queue = QueueConfig(
        name=name,
        visibility_timeout_s=_optional(entry, "visibility_timeout", seconds(0, 43_200)),
        delay_s=_optional(entry, "delay", seconds(0, 900)),
        retention_s=_optional(entry, "retention", seconds(60, 1_209_600)),
        wait_s=_optional(entry, "wait", seconds(0, 20)),
        max_message_bytes=_optional(entry, "max_message_bytes", whole(1_024, MAX_MESSAGE_BYTES)),
        dead_letter_queue=_optional(entry, "dead_letter_queue", queue_name),
        max_receive_count=_optional(entry, "max_receive_count", whole(1, 1_000)),
        content_based_deduplication=_optional(entry, "content_based_deduplication", flag),
        is_high_throughput=_optional(entry, "high_throughput", flag),
        tags=entry.take("tags", _tags, {}),
    )
    _check_agreement(entry, queue)
    entry.finish()
    return queue


def _optional(entry: Entry, key: str, read: Read[T]) -> T | None:
    return entry.take(key, read, None)


def _check_kind(entry: Entry, name: str) -> None:
    is_fifo = name.endswith(FIFO_SUFFIX)
    if entry.take("fifo", flag, is_fifo) != is_fifo:
        other = name.removesuffix(FIFO_SUFFIX) if is_fifo else f"{name}{FIFO_SUFFIX}"
        entry.note("fifo", f"SQS knows a FIFO queue by its name; call this one {other}")


def _check_agreement(entry: Entry, queue: QueueConfig) -> None:
    target = queue.dead_letter_queue
    if target is None and queue.max_receive_count is not None:
        entry.note("max_receive_count", "name a dead_letter_queue as well, or leave this out")
    if target is not None and queue.max_receive_count is None:
        entry.note("dead_letter_queue", "say after how many receives: max_receive_count: 3")
    if target is not None and target.endswith(FIFO_SUFFIX) != queue.is_fifo:
        kind = "a FIFO" if queue.is_fifo else "a standard"
        entry.note("dead_letter_queue", f"the dead letters of this queue go to {kind} queue")
    for key, value in (
        ("content_based_deduplication", queue.content_based_deduplication),
        ("high_throughput", queue.is_high_throughput),
    ):
        if value and not queue.is_fifo:
            entry.note(key, "only FIFO queues have this; leave it out, or name the queue ….fifo")


def _tags(value: object) -> Mapping[str, str]:
    tags = table(value)
    if len(tags) > _MAX_TAGS:
        raise Unusable(f"SQS takes at most {_MAX_TAGS} tags a queue")
    for name, content in tags.items():
        if not isinstance(content, str):
            raise Unusable(f"the tag {name} must be text; put its value in quotes")
    return dict(tags)


def with_dead_letter_queues(
    queues: tuple[QueueConfig, ...], problems: list[Problem]
) -> tuple[QueueConfig, ...]:
    """Each dead-letter queue before those that name it; one that is only named is made too."""
    by_name = {queue.name: queue for queue in queues}
    ordered: dict[str, QueueConfig] = {}
    for queue in queues:
        chain = _chain(queue, by_name)
        if chain is None:
            remedy = "dead letters would go round in a circle; name a queue outside of it"
            key = f"queues.{queue.name}.dead_letter_queue"
            problems.append(Problem(key, queue.dead_letter_queue, remedy))
            continue
        ordered.update({each.name: each for each in reversed(chain) if each.name not in ordered})
    return tuple(ordered.values())


def _chain(queue: QueueConfig, by_name: Mapping[str, QueueConfig]) -> list[QueueConfig] | None:
    chain = [queue]
    while (target := chain[-1].dead_letter_queue) is not None:
        if target in [each.name for each in chain]:
            return None
        chain.append(by_name.get(target) or QueueConfig(name=target))
    return chain
