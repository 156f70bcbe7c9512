"""The doctor of buckets: what is worth a person's attention, from facts."""

from __future__ import annotations

from typing import Any

import pytest

from gateways.s3 import S3Settings
from gateways.s3.doctor import BucketFacts, Skew, bucket_findings, queue_findings, rules_of
from gateways.s3.layout import Layout, QueueDescription
from pump.errors import QueueMismatch
from pump.findings import Finding, Level
from pump.testing.builders import a_subscription

SETTINGS = S3Settings(bucket="bucket", prefix="team")


def of_bucket(facts: BucketFacts, skew: Skew | None = None) -> list[Finding]:
    """What is said beyond that conditions hold."""
    return list(bucket_findings(SETTINGS, facts, skew))[1:]


def a_rule(**fields: Any) -> dict[str, Any]:
    return {"ID": "tidy", "Status": "Enabled", "Filter": {"Prefix": "team/"}, **fields}


@pytest.mark.parametrize(
    "rule",
    [
        a_rule(Expiration={"Days": 7}),
        a_rule(Expiration={"Days": 7}, Filter={}),
        a_rule(Expiration={"Date": "2030-01-01"}, Filter={"Prefix": ""}),
        a_rule(Expiration={"Days": 7}, Filter={"Prefix": "team/queues/orders/"}),
        a_rule(Expiration={"Days": 7}, Filter={"And": {"Prefix": "te", "ObjectSizeLessThan": 9}}),
        {"ID": "old", "Status": "Enabled", "Prefix": "team", "Expiration": {"Days": 1}},
        a_rule(Transitions=[{"Days": 0, "StorageClass": "GLACIER"}]),
    ],
    ids=str,
)
def test_when_a_rule_takes_messages_away_then_that_is_an_error(rule: dict[str, Any]) -> None:
    """They would vanish unhandled."""
    [finding] = of_bucket(BucketFacts(rules=rules_of([rule])))

    assert finding.level is Level.ERROR
    assert "lifecycle rule" in finding.detail
    assert "'team/queues/'" in finding.remedy


@pytest.mark.parametrize(
    "rule",
    [
        a_rule(Expiration={"Days": 7}, Status="Disabled"),
        a_rule(Expiration={"Days": 7}, Filter={"Prefix": "other/"}),
        a_rule(Expiration={"Days": 7}, Filter={"Prefix": "team/probe/"}),
        a_rule(Expiration={"Days": 7}, Filter={"Tag": {"Key": "a", "Value": "b"}}),
        a_rule(Expiration={"Days": 7}, Filter={"And": {"Prefix": "team/", "Tags": [{"Key": "a"}]}}),
        a_rule(Expiration={"ExpiredObjectDeleteMarker": True}),
        a_rule(AbortIncompleteMultipartUpload={"DaysAfterInitiation": 1}),
    ],
    ids=str,
)
def test_when_a_rule_leaves_messages_alone_then_nothing_is_said(rule: dict[str, Any]) -> None:
    assert of_bucket(BucketFacts(rules=rules_of([rule]))) == []


def test_when_versions_pile_up_then_that_is_a_warning_unless_they_are_cleared() -> None:
    """Each claim and ack would be paid for as long as the bucket lives."""
    cleared = a_rule(NoncurrentVersionExpiration={"NoncurrentDays": 1})

    [finding] = of_bucket(BucketFacts(is_versioned=True))

    assert finding.level is Level.WARNING
    assert "versioning is on" in finding.detail
    assert of_bucket(BucketFacts(is_versioned=True, rules=rules_of([cleared]))) == []
    assert of_bucket(BucketFacts(is_versioned=False)) == []


@pytest.mark.parametrize(
    ("skew", "is_told"),
    [
        (Skew(least_s=-1.0, most_s=1.0), False),
        (Skew(least_s=59.0, most_s=61.0), False),
        (Skew(least_s=90.0, most_s=91.0), True),
        (Skew(least_s=-91.0, most_s=-90.0), True),
    ],
)
def test_when_clocks_are_far_apart_then_it_is_told(skew: Skew, is_told: bool) -> None:
    """T8: leases do not mind, signatures do."""
    findings = of_bucket(BucketFacts(), skew)

    assert [finding.level for finding in findings] == [Level.WARNING] * is_told


def test_when_it_may_not_be_asked_then_the_permission_is_named() -> None:
    [finding] = of_bucket(BucketFacts(denied=("s3:GetBucketVersioning",)))

    assert finding.level is Level.OK
    assert "s3:GetBucketVersioning" in finding.detail


def test_when_conditions_were_not_tried_then_that_is_a_warning() -> None:
    """T8."""
    settings = S3Settings(bucket="bucket", probe=False)

    [finding] = bucket_findings(settings, BucketFacts(), None)

    assert finding.level is Level.WARNING


# -- queues -------------------------------------------------------------------------------------


def test_when_a_queue_exists_and_fits_then_all_is_well() -> None:
    [finding] = queue_findings(
        a_subscription("orders"), {"orders": QueueDescription(name="orders")}
    )

    assert finding.level is Level.OK


@pytest.mark.parametrize(
    ("make", "level"), [("create", Level.OK), ("validate", Level.ERROR), ("assume", Level.ERROR)]
)
def test_when_a_queue_is_missing_then_it_depends_who_makes_it(make: str, level: Level) -> None:
    subscription = a_subscription("orders", make_channels=make)

    [finding] = queue_findings(subscription, {"orders": None})

    assert finding.level is level


@pytest.mark.parametrize(
    ("make", "level"),
    [("create", Level.WARNING), ("validate", Level.ERROR), ("assume", Level.WARNING)],
)
def test_when_a_queue_differs_then_it_is_said_where(make: str, level: Level) -> None:
    """R56."""
    subscription = a_subscription("orders", ordering_guarantee=True, make_channels=make)

    [finding] = queue_findings(subscription, {"orders": QueueDescription(name="orders")})

    assert finding.level is level
    assert "is_strict is False, asked for True" in finding.detail


def test_when_another_layout_is_asked_for_then_no_opening_will_change_it() -> None:
    """R56."""
    subscription = a_subscription("orders", options={"layout": "log"})

    [finding] = queue_findings(
        subscription, {"orders": QueueDescription(name="orders", layout=Layout.LEASES)}
    )

    assert finding.level is Level.ERROR


def test_when_a_queue_cannot_be_had_or_read_then_that_is_an_error() -> None:
    odd = a_subscription("orders", options={"colour": "red"})
    facts = QueueDescription(name="orders")

    [unknown_option] = queue_findings(odd, {"orders": facts})
    [unreadable] = queue_findings(
        a_subscription("orders"), {"orders": QueueMismatch("orders", "it cannot be read")}
    )

    assert unknown_option.level is unreadable.level is Level.ERROR
