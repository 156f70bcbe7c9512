"""From a configuration file to a `LocalConfig`, or to an error that names every problem at once."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import attrs

from ..model import DEFAULT_ACCOUNT, DEFAULT_REGION, FIFO_SUFFIX, MAX_MESSAGE_BYTES, QueueId
from .entry import (
    Entry,
    InvalidLocalConfig,
    Problem,
    Read,
    T,
    Unusable,
    flag,
    read_file,
    seconds,
    table,
    text,
    whole,
)
from .patterns import Filter, read_filters

# What a configuration file says, checked: queues to make and event-source mappings to run.

DEFAULT_VISIBILITY_S: Final = 30
DEFAULT_TIMEOUT_S: Final = 3
"""Lambda's."""
DEFAULT_CONCURRENCY: Final = 5
"""With how many batches at once Lambda starts on a queue."""


@attrs.frozen(kw_only=True)
class QueueConfig:
    """A queue to make. None leaves an attribute to SQS's default."""

    name: str
    visibility_timeout_s: int | None = None
    delay_s: int | None = None
    retention_s: int | None = None
    wait_s: int | None = None
    max_message_bytes: int | None = None
    dead_letter_queue: str | None = None
    max_receive_count: int | None = None
    content_based_deduplication: bool | None = None
    is_high_throughput: bool | None = None
    tags: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def is_fifo(self) -> bool:
        """Whether SQS takes it for a FIFO queue: by its name."""
        return self.name.endswith(FIFO_SUFFIX)

    def address(self, account: str = DEFAULT_ACCOUNT, region: str = DEFAULT_REGION) -> QueueId:
        """Which queue it is, in an account and region."""
        return QueueId(account, region, self.name)

    def sqs_attributes(
        self, account: str = DEFAULT_ACCOUNT, region: str = DEFAULT_REGION
    ) -> Mapping[str, str]:
        """As CreateQueue takes them; only what the file says, so that the rest may differ."""
        numbers = {
            "VisibilityTimeout": self.visibility_timeout_s,
            "DelaySeconds": self.delay_s,
            "MessageRetentionPeriod": self.retention_s,
            "ReceiveMessageWaitTimeSeconds": self.wait_s,
            "MaximumMessageSize": self.max_message_bytes,
        }
        found = {name: str(value) for name, value in numbers.items() if value is not None}
        if self.is_fifo:
            found["FifoQueue"] = "true"
        if self.content_based_deduplication is not None:
            found["ContentBasedDeduplication"] = _word(self.content_based_deduplication)
        if self.is_high_throughput is not None:
            found |= _HIGH_THROUGHPUT if self.is_high_throughput else _NORMAL_THROUGHPUT
        if self.dead_letter_queue is not None:
            target = QueueId(account, region, self.dead_letter_queue)
            found["RedrivePolicy"] = json.dumps(
                {"deadLetterTargetArn": target.arn, "maxReceiveCount": self.max_receive_count}
            )
        return found


@attrs.frozen(kw_only=True)
class MappingConfig:
    """One event-source mapping: a queue, the function its messages go to, and how."""

    queue: str
    function: str
    """`module:function`."""
    batch_size: int = 10
    batching_window_s: int = 0
    reports_item_failures: bool = False
    max_concurrency: int = DEFAULT_CONCURRENCY
    filters: tuple[Filter, ...] = ()
    """A message passes when one of them matches, or when there are none."""
    timeout_s: int = DEFAULT_TIMEOUT_S
    is_enabled: bool = True
    reloads: bool = True
    origin: str = "mappings[0]"
    """File and key, for what can only go wrong later: `local.yaml: mappings[0]`."""

    @property
    def function_name(self) -> str:
        """What the function is called in Lambda's terms: the last word of `function`."""
        return self.function.rpartition(":")[2].rpartition(".")[2]


@attrs.frozen(kw_only=True)
class LocalConfig:
    """A whole configuration file."""

    queues: tuple[QueueConfig, ...] = ()
    """Dead-letter queues stand before the queues that name them, also those the file only names."""
    mappings: tuple[MappingConfig, ...] = ()
    account: str = DEFAULT_ACCOUNT
    region: str = DEFAULT_REGION
    warnings: tuple[str, ...] = ()
    """What works here, and would surprise on AWS or in the long run."""


_HIGH_THROUGHPUT: Final = {
    "DeduplicationScope": "messageGroup",
    "FifoThroughputLimit": "perMessageGroupId",
}
_NORMAL_THROUGHPUT: Final = {"DeduplicationScope": "queue", "FifoThroughputLimit": "perQueue"}


def _word(value: bool) -> str:
    return "true" if value else "false"


_ACCOUNT: Final = re.compile(r"\d{12}")
_REGION: Final = re.compile(r"[a-z]{2,}(-[a-z]+)+-\d+")


def load_config(path: Path | str) -> LocalConfig:
    """Read a .yaml, .yml or .toml file.

    Raises `InvalidLocalConfig`, with all its problems, or another ConfigurationError when the
    file cannot be read at all. Functions are not imported here.
    """
    path = Path(path)
    values = read_file(path)
    problems: list[Problem] = []
    entry = Entry(values, "", problems)
    account = entry.take("account", _account, DEFAULT_ACCOUNT)
    region = entry.take("region", _region, DEFAULT_REGION)
    named = read_queues(entry.take("queues", _anything, None), problems)
    queues = with_dead_letter_queues(named, problems)
    by_name = {queue.name: queue for queue in (*queues, *named)}
    mappings = read_mappings(entry.take("mappings", _anything, None), str(path), problems, by_name)
    entry.finish()
    if problems:
        raise InvalidLocalConfig.of(str(path), problems)
    return LocalConfig(
        queues=queues,
        mappings=mappings,
        account=account,
        region=region,
        warnings=mapping_warnings(mappings, by_name),
    )


def _anything(value: object) -> object:
    return value


def _account(value: object) -> str:
    # Without quotes, both formats read a number, and YAML some as octal.
    if not isinstance(value, str) or not _ACCOUNT.fullmatch(value):
        raise Unusable('use 12 digits in quotes, such as "000000000000"')
    return value


def _region(value: object) -> str:
    if not _REGION.fullmatch(text(value)):
        raise Unusable("use a region's name, such as eu-west-1")
    return str(value)


# The `mappings` of a file: Lambda's limits for SQS, and what it only advises as warnings.

_IDENTIFIER: Final = r"[^\W\d]\w*"
_FUNCTION: Final = re.compile(rf"{_IDENTIFIER}(\.{_IDENTIFIER})*:{_IDENTIFIER}(\.{_IDENTIFIER})*")
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
        _check_mapping(entry, mapping, queues)
    return mapping


def _check_mapping(entry: Entry, mapping: MappingConfig, queues: Mapping[str, QueueConfig]) -> None:
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


# The `queues` of a file: SQS's own limits, and what the entries must agree on.

_QUEUE_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,80}|(?=.{1,80}$)[A-Za-z0-9_-]+\.fifo")
_MAX_TAGS: Final = 50


def queue_name(value: object) -> str:
    """A name that SQS takes."""
    name = text(value)
    if not _QUEUE_NAME.fullmatch(name):
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
    _check_queue(entry, queue)
    entry.finish()
    return queue


def _optional(entry: Entry, key: str, read: Read[T]) -> T | None:
    return entry.take(key, read, None)


def _check_kind(entry: Entry, name: str) -> None:
    is_fifo = name.endswith(FIFO_SUFFIX)
    if entry.take("fifo", flag, is_fifo) != is_fifo:
        other = name.removesuffix(FIFO_SUFFIX) if is_fifo else f"{name}{FIFO_SUFFIX}"
        entry.note("fifo", f"SQS knows a FIFO queue by its name; call this one {other}")


def _check_queue(entry: Entry, queue: QueueConfig) -> None:
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
