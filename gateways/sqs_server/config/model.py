"""What a configuration file says, checked: queues to make and event-source mappings to run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import attrs

from ..model import DEFAULT_ACCOUNT, DEFAULT_REGION, FIFO_SUFFIX, QueueId
from .patterns import Filter

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
