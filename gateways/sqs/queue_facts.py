"""Queue facts: what SQS lets us know about a queue, for `pump doctor` to judge. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping

import attrs

from pump.errors import ConfigurationError

RETENTION = "MessageRetentionPeriod"


@attrs.frozen(kw_only=True)
class Redrive:
    """A queue's own dead-lettering, by SQS itself."""

    target_arn: str
    max_receive_count: int


@attrs.frozen(kw_only=True)
class QueueFacts:
    """One queue, as far as these credentials may see it."""

    queue: str
    """What the subscription, or a redrive policy, calls it."""
    exists: bool = True
    is_ours: bool = True
    """Whether the app would make it: it is of our account, and was given by its name."""
    trouble: ConfigurationError | None = None
    """Why it cannot even be asked for, when it cannot."""
    attributes: Mapping[str, str] | None = None
    """As SQS words them; None when they could not be read."""
    granted: frozenset[str] = frozenset()
    """The IAM actions that were tried and allowed."""
    denied: frozenset[str] = frozenset()
    """The IAM actions that were tried and refused."""

    @property
    def resource(self) -> str:
        """What a policy that grants something on it has to name."""
        return (self.attributes or {}).get("QueueArn", self.queue)

    @property
    def retention_s(self) -> int | None:
        """How long it keeps messages."""
        return self._seconds(RETENTION)

    @property
    def visibility_s(self) -> int | None:
        """How long it hides what somebody receives who does not say for how long."""
        return self._seconds("VisibilityTimeout")

    @property
    def redrive(self) -> Redrive | None:
        """Where SQS itself moves what was received too often; None when it does not."""
        try:
            policy = json.loads((self.attributes or {})["RedrivePolicy"])
            # SQS gives the count back as it was written: as a number or as text.
            return Redrive(
                target_arn=policy["deadLetterTargetArn"],
                max_receive_count=int(policy["maxReceiveCount"]),
            )
        except (KeyError, TypeError, ValueError):
            return None

    def _seconds(self, name: str) -> int | None:
        value = (self.attributes or {}).get(name)
        return None if value is None else int(value)
