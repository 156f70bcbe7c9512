"""The sample of the Service Bus gateway: on the embedded queue, and on the peer by another URL."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.brokers.servicebus_peer.process import ServiceBusPeer

from .test_samples import expected_lines, run

SAMPLE = "invoices_on_servicebus"


def printed(cwd: Path, gateway: str = "") -> list[str]:
    """Write invoices as the shop, print them as the service; what that prints."""
    sent = run("-m", f"samples.{SAMPLE}", *filter(None, [gateway]), cwd=cwd)
    assert sent.returncode == 0, sent.stderr
    service = ("-m", "pump", "run", f"samples.{SAMPLE}:app", "--until-empty")
    done = run(*service, cwd=cwd, PUMP_GATEWAY=gateway)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.timeout(150)
def test_invoices_on_servicebus_runs_without_an_account(tmp_path: Path) -> None:
    """R55: the gateway is chosen by configuration, and the embedded one is the default."""
    assert sorted(printed(tmp_path)) == expected_lines(SAMPLE)


@pytest.mark.broker
@pytest.mark.timeout(150)
def test_invoices_on_servicebus_runs_on_the_peer(
    servicebus: ServiceBusPeer, tmp_path: Path
) -> None:
    """R55: the same program through the real SDK, by a URL alone."""
    assert sorted(printed(tmp_path, servicebus.url)) == expected_lines(SAMPLE)
