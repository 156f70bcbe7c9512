"""Which calls are tried again, and when: botocore's own standard mode, asked from outside.

It knows AWS's errors, backs off with jitter, and has a budget for retries that a client shares. A
table of ours beside it would be a second one to keep.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from botocore.retries import quota, standard

from .messages import Answer


class RetryPolicy:
    """The policy of one client, with the budget its calls share."""

    def __init__(self, max_attempts: int) -> None:
        self._max_attempts = max_attempts
        adapter = standard.RetryEventAdapter()
        told = _what_throttles(adapter)
        self._budget = standard.RetryQuotaChecker(quota.RetryQuota(), **told)
        # Without the service's name: for a long poll the handler would sleep by itself, and so
        # hold up the event loop.
        self._handler = standard.RetryHandler(
            retry_policy=standard.RetryPolicy(
                retry_checker=standard.StandardRetryConditions(max_attempts=max_attempts),
                retry_backoff=standard.ExponentialBackoff(**told),
            ),
            retry_event_adapter=adapter,
            retry_quota=self._budget,
        )

    def begin(self, operation_model: Any) -> Tries:
        """The tries of one call."""
        return Tries(self._handler, self._budget, self._max_attempts, operation_model)


def _what_throttles(adapter: Any) -> dict[str, Any]:
    """For a botocore that waits longer for a service that throttles than for one that fails."""
    detector = standard.ThrottlingErrorDetector(adapter)
    is_asked = hasattr(detector, "is_throttling_error_from_context")
    return {"throttling_detector": detector} if is_asked else {}


@attrs.frozen
class _Head:
    """All that the policy reads of an HTTP response."""

    status_code: int
    headers: Mapping[str, str]
    """Names in lower case. Newer releases of botocore heed `x-amz-retry-after`."""

    @classmethod
    def of(cls, refusal: dict[str, Any]) -> _Head:
        metadata = refusal["ResponseMetadata"]
        return cls(metadata["HTTPStatusCode"], metadata["HTTPHeaders"])


@attrs.define
class Tries:
    """How often one call was tried, and whether it may be again."""

    _handler: Any
    _budget: Any
    _max_attempts: int
    _operation_model: Any
    _context: dict[str, Any] = attrs.field(factory=dict, init=False)
    count: int = attrs.field(default=1, init=False)

    def succeeded(self, answer: Answer) -> None:
        """Give back to the budget what this call took from it."""
        self._budget.release_retry_quota(self._context, answer)

    def delay_s(self, *, refusal: dict[str, Any] | None, error: Exception | None) -> float | None:
        """How long to wait before the next try; None when this was the last.

        Leaves in the refusal, as botocore does, that the attempts or the budget were used up.
        """
        delay_s: float | None = self._handler.needs_retry(
            response=None if refusal is None else (_Head.of(refusal), refusal),
            attempts=self.count,
            operation=self._operation_model,
            caught_exception=error,
            request_dict={"context": self._context},
        )
        self.count += delay_s is not None
        return delay_s

    def again_at_once(self) -> bool:
        """Take one more try without waiting, if there is one left."""
        if self.count >= self._max_attempts:
            return False
        self.count += 1
        return True
