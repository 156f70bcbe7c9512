"""The `mappings` of a file: Lambda's limits for SQS, and what it only advises as warnings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from .entry import Entry, Unusable, flag, seconds, table, text, whole
from .filters import read_filters
from .model import (
    DEFAULT_CONCURRENCY,
    DEFAULT_TIMEOUT_S,
    DEFAULT_VISIBILITY_S,
    MappingConfig,
    QueueConfig,
)
from .problems import Problem

_NAME: Final = r"[^\W\d]\w*"
_FUNCTION: Final = re.compile(rf"{_NAME}(\.{_NAME})*:{_NAME}(\.{_NAME})*")
_MAX_BATCH: Final = 10_000
_MAX_SMALL_BATCH: Final = 10
"""What one receive gives; more needs a window, and a FIFO queue has none."""
_ADVISED_FACTOR: Final = 6
"""AWS: visibility for six runs of the function, so that throttled batches can be tried again."""


def read_mappings(
    values: object, file: str, problems: list[Problem], queues: Mapping[str, QueueConfig]
) -> tuple[MappingConfig, ...]:
    """Every mapping of the file; what is wrong goes to `problems`."""
    if values is None:
        return ()
    if not isinstance(values, list):
        problems.append(Problem("mappings", values, "write a list: each mapping begins with a -"))
        return ()
    found = [
        _read_mapping(content, f"mappings[{index}]", file, problems, queues)
        for index, content in enumerate(values)
    ]
    mappings = tuple(mapping for mapping in found if mapping is not None)
    _check_unique(mappings, problems)
    return mappings


def _read_mapping(
    content: object,
    path: str,
    file: str,
    problems: list[Problem],
    queues: Mapping[str, QueueConfig],
) -> MappingConfig | None:
    try:
        entry = Entry(table(content), path, problems)
    except Unusable as problem:
        problems.append(Problem(path, content, str(problem)))
        return None
    known_before = len(problems)
    mapping = MappingConfig(
        queue=entry.require("queue", text, "name one of the file's queues") or "",
        function=entry.require("function", _function, "write module:function") or "",
        batch_size=entry.take("batch_size", whole(1, _MAX_BATCH), 10),
        batching_window_s=entry.take("batching_window", seconds(0, 300), 0),
        reports_item_failures=entry.take("report_batch_item_failures", flag, False),
        max_concurrency=entry.take("maximum_concurrency", _concurrency, DEFAULT_CONCURRENCY),
        filters=entry.take("filter_criteria", read_filters, ()),
        timeout_s=entry.take("timeout", seconds(1, 900), DEFAULT_TIMEOUT_S),
        is_enabled=entry.take("enabled", flag, True),
        reloads=entry.take("reload", flag, True),
        origin=f"{file}: {path}",
    )
    entry.finish()
    if len(problems) == known_before:
        _check_agreement(entry, mapping, queues)
    return mapping


def _check_agreement(
    entry: Entry, mapping: MappingConfig, queues: Mapping[str, QueueConfig]
) -> None:
    queue = queues.get(mapping.queue)
    if queue is None:
        entry.note("queue", _unknown_queue(mapping.queue, list(queues)))
        return
    if queue.is_fifo and mapping.batching_window_s:
        entry.note("batching_window", "AWS has no batching window for FIFO queues; leave it out")
    if queue.is_fifo and mapping.batch_size > _MAX_SMALL_BATCH:
        entry.note("batch_size", f"AWS takes at most {_MAX_SMALL_BATCH} from a FIFO queue")
    elif mapping.batch_size > _MAX_SMALL_BATCH and not mapping.batching_window_s:
        entry.note("batch_size", "above 10, AWS asks for a batching_window of at least 1s; add one")
    if _visibility_s(queue) < mapping.timeout_s:
        entry.note(
            "timeout",
            f"AWS refuses a function that may run longer than the queue's visibility timeout "
            f"({_visibility_s(queue)} s); set queues.{queue.name}.visibility_timeout to "
            f"{_advised_s(mapping)}s",
        )


def _check_unique(mappings: tuple[MappingConfig, ...], problems: list[Problem]) -> None:
    seen: dict[tuple[str, str], str] = {}
    for mapping in mappings:
        key = mapping.origin.rpartition(": ")[2]
        before = seen.setdefault((mapping.queue, mapping.function), key)
        if before != key and mapping.queue and mapping.function:
            remedy = f"{before} maps the same queue to the same function; remove one of them"
            problems.append(Problem(f"{key}.function", mapping.function, remedy))


def mapping_warnings(
    mappings: tuple[MappingConfig, ...], queues: Mapping[str, QueueConfig]
) -> tuple[str, ...]:
    """What runs, and should not be left so."""
    found: list[str] = []
    for mapping in mappings:
        queue = queues[mapping.queue]
        if _visibility_s(queue) < _advised_s(mapping):
            found.append(
                f"{mapping.origin}.timeout: AWS advises a visibility timeout of six times the "
                f"function's timeout plus the batching window; set "
                f"queues.{queue.name}.visibility_timeout to {_advised_s(mapping)}s or more "
                f"(it is {_visibility_s(queue)} s)"
            )
        if any(each.uses_more_than_the_body() for each in mapping.filters):
            found.append(
                f"{mapping.origin}.filter_criteria: for SQS, AWS documents filters on body only"
            )
    return tuple(found)


def _visibility_s(queue: QueueConfig) -> int:
    if queue.visibility_timeout_s is None:
        return DEFAULT_VISIBILITY_S
    return queue.visibility_timeout_s


def _advised_s(mapping: MappingConfig) -> int:
    return _ADVISED_FACTOR * mapping.timeout_s + mapping.batching_window_s


def _unknown_queue(name: str, queues: list[str]) -> str:
    close = get_close_matches(name, queues, n=1)
    if close:
        return f"there is no such queue under queues; did you mean {close[0]}?"
    return "there is no such queue under queues; add it there, an empty entry takes the defaults"


def _function(value: object) -> str:
    if not isinstance(value, str) or not _FUNCTION.fullmatch(value):
        raise Unusable("write module:function, such as shop.functions:on_orders")
    return value


def _concurrency(value: object) -> int:
    try:
        return whole(2, 1_000)(value)
    except Unusable:
        raise Unusable(
            "use a whole number from 2 to 1000, as AWS does; for one batch at a time, use a FIFO "
            "queue with one message group"
        ) from None
