"""What `pump doctor` says about leases on RabbitMQ."""

from __future__ import annotations

from datetime import timedelta

from gateways.rabbitmq.gateway import lease_findings
from pump.findings import Level
from pump.testing.builders import a_subscription


def test_when_a_lease_is_shorter_than_three_heartbeats_then_the_doctor_names_one_that_fits() -> (
    None
):
    """R8, R41: a process that stands still keeps what it has until the broker misses it."""
    subscription = a_subscription("orders", lease=timedelta(seconds=4))

    [finding] = lease_findings(subscription, heartbeat_s=10)

    assert finding.level is Level.WARNING
    assert "4 s" in finding.detail
    assert "30 s" in finding.detail
    assert "heartbeat=1 " in finding.remedy


def test_when_a_lease_is_three_heartbeats_long_then_the_doctor_is_content() -> None:
    subscription = a_subscription("orders", lease=timedelta(seconds=30))

    assert lease_findings(subscription, heartbeat_s=10) == []
