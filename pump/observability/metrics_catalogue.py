"""Catalogue: every metric we export, its unit and what it tells."""

from __future__ import annotations

from enum import StrEnum

import attrs

from . import vocabulary


class Kind(StrEnum):
    """How a metric behaves; the values are Prometheus' names for it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@attrs.frozen
class Metric:
    """One metric; the unit is UCUM's, as OpenTelemetry wants it."""

    name: str
    kind: Kind
    unit: str
    description: str


def _messages(name: str, description: str) -> Metric:
    return Metric(name, Kind.COUNTER, "{message}", description)


_ALL = (
    _messages(vocabulary.MESSAGES_SENT, "Messages that were sent."),
    _messages(vocabulary.MESSAGES_RECEIVED, "Deliveries of messages, again or for the first time."),
    _messages(vocabulary.COMPLETED, "Deliveries that were handled, and acked."),
    _messages(vocabulary.RETRIED, "Deliveries that failed or were put off, and come again."),
    _messages(vocabulary.REJECTED, "Messages that were routed away, by reason."),
    _messages(vocabulary.DISCARDED, "Rejected messages for which there was no queue, by reason."),
    _messages(vocabulary.SPILLED, "Rejected messages whose queue could not be reached."),
    _messages(vocabulary.PLAINTEXT_REFUSED, "Unencrypted messages that were not accepted."),
    _messages(vocabulary.PLAINTEXT_ALERTS, "Unencrypted messages accepted with an alert."),
    _messages(vocabulary.RELEASED, "Deliveries that were handed back untried."),
    Metric(
        vocabulary.ROUTING_FAILURES,
        Kind.COUNTER,
        "{failure}",
        "Rejected messages that could not be routed at once.",
    ),
    Metric(vocabulary.LEASE_EXTENSIONS, Kind.COUNTER, "{lease}", "Leases that were extended."),
    Metric(vocabulary.LEASES_LOST, Kind.COUNTER, "{lease}", "Leases that were lost."),
    Metric(
        vocabulary.ERRORS,
        Kind.COUNTER,
        "{error}",
        "Failed calls and handlers, by operation and type.",
    ),
    Metric(
        vocabulary.IN_FLIGHT,
        Kind.GAUGE,
        "{message}",
        "Messages that pumps have received and not yet settled.",
    ),
    Metric(
        vocabulary.SPILL_MESSAGES, Kind.GAUGE, "{message}", "Messages that wait in the spill store."
    ),
    Metric(
        vocabulary.PROCESS_DURATION, Kind.HISTOGRAM, "s", "How long decoding and handling took."
    ),
    Metric(
        vocabulary.OPERATION_DURATION,
        Kind.HISTOGRAM,
        "s",
        "How long calls to the broker took, waiting for messages included.",
    ),
)
CATALOGUE = {metric.name: metric for metric in _ALL}


def described(name: str) -> Metric:
    """The metric of that name; one that only the application knows is a counter of it."""
    return CATALOGUE.get(name) or Metric(name, Kind.COUNTER, "1", "")
