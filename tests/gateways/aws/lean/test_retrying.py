"""The retry policy is botocore's, and its releases differ in what they ask of a response."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.retries import standard

from gateways._aws.lean.service import RetryPolicy

BUSY: dict[str, Any] = {
    "Error": {"Code": "SlowDown"},
    "ResponseMetadata": {"HTTPStatusCode": 503, "HTTPHeaders": {"x-amz-retry-after": "1500"}},
}


class _Model:
    """An operation without errors of its own."""

    error_shapes: tuple[Any, ...] = ()


def test_when_botocore_reads_a_header_of_the_response_then_it_finds_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or the first response that is worth another try would end the call."""

    def delay_amount(_: Any, context: Any) -> float:
        return int(context.http_response.headers.get("x-amz-retry-after")) / 1000

    monkeypatch.setattr(standard.ExponentialBackoff, "delay_amount", delay_amount)

    assert RetryPolicy(2).begin(_Model()).delay_s(refusal=BUSY, error=None) == 1.5


def test_when_botocore_waits_longer_for_who_throttles_then_it_is_told_who_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A budget and a backoff that cannot tell would ask again twenty times as soon."""
    told: list[bool] = []

    class Detector(standard.ThrottlingErrorDetector):  # type: ignore[misc]
        def is_throttling_error_from_context(self, context: Any) -> bool:
            return bool(context.get_error_code() == "SlowDown")

    class Backoff(standard.ExponentialBackoff):  # type: ignore[misc]
        def __init__(self, throttling_detector: Any) -> None:
            super().__init__()
            self._detector = throttling_detector

        def delay_amount(self, context: Any) -> float:
            told.append(self._detector.is_throttling_error_from_context(context))
            return 1.0

    class Budget(standard.RetryQuotaChecker):  # type: ignore[misc]
        def __init__(self, quota: Any, throttling_detector: Any) -> None:
            super().__init__(quota)
            self._detector = throttling_detector

        def acquire_retry_quota(self, context: Any) -> bool:
            told.append(self._detector.is_throttling_error_from_context(context))
            return True

    for name, newer in (
        ("ThrottlingErrorDetector", Detector),
        ("ExponentialBackoff", Backoff),
        ("RetryQuotaChecker", Budget),
    ):
        monkeypatch.setattr(standard, name, newer)

    assert RetryPolicy(2).begin(_Model()).delay_s(refusal=BUSY, error=None) == 1.0
    assert told == [True, True]
