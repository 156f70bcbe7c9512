"""The sample of the NATS gateway: on the embedded queue, and on NATS by nothing but another URL."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.brokers.nats_server import NatsServer

from .test_samples import expected_lines, run

SAMPLE = "reminders_on_nats"


def reminded(cwd: Path, gateway: str = "") -> list[str]:
    """Send reminders as the calendar, handle them as the service; what that prints."""
    sent = run("-m", f"samples.{SAMPLE}", *filter(None, [gateway]), cwd=cwd)
    assert sent.returncode == 0, sent.stderr
    service = ("-m", "pump", "run", f"samples.{SAMPLE}:app", "--until-empty")
    done = run(*service, cwd=cwd, PUMP_GATEWAY=gateway)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.timeout(150)
def test_reminders_on_nats_runs_without_a_server(tmp_path: Path) -> None:
    """R55: the gateway is chosen by configuration, and the embedded one is the default."""
    assert sorted(reminded(tmp_path)) == expected_lines(SAMPLE)


@pytest.mark.broker
@pytest.mark.timeout(150)
def test_reminders_on_nats_runs_on_nats(nats: NatsServer, tmp_path: Path) -> None:
    """R55, R39: the same program on a server, by a URL alone."""
    assert sorted(reminded(tmp_path, nats.url)) == expected_lines(SAMPLE)
