"""Secrets: fed in wherever they can get in, and looked for in everything that is exported."""

from __future__ import annotations

import logging

import pytest

from pump.errors import ConnectionFailed
from pump.observability.otel import OpenTelemetry
from pump.outcome import InvalidMessage, RejectMessage
from pump.testing.builders import a_message
from tests.core.rig import Rig, Work

from .collector import collecting

BODY, HEADER, RAISED, SIGNAL, RECEIPT = (
    f"hunter2-{place}" for place in ("body", "header", "raised", "signal", "broker")
)


async def handle(work: Work) -> None:
    match work.n % 4:
        case 1:
            raise ValueError(f"cannot log in with {RAISED}")
        case 2:
            raise RejectMessage(SIGNAL)
        case 3:
            raise ExceptionGroup(RAISED, [InvalidMessage(SIGNAL), OSError(RAISED)])


async def test_when_secrets_are_in_bodies_headers_and_errors_then_nothing_exported_has_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """R57, R59, R60: no span attribute, event, status, metric or label quotes one."""
    caplog.set_level(logging.WARNING, "opentelemetry")
    with collecting() as collector:
        telemetry = OpenTelemetry.otlp(endpoint=collector.url)
        rig = Rig(handle, invalid_queue="invalid")
        rig.app.telemetry = telemetry
        async with rig:
            await rig.start()
            rig.gateway.fail("settle", ConnectionFailed("broker", RECEIPT), times=1)
            rig.gateway.fail("receive", ConnectionFailed("broker", RECEIPT), times=1)
            for number in range(4):
                body = f'{{"n": {number}, "password": "{BODY}"}}'
                await rig.send_raw(a_message(body, type="Work", headers={"authorization": HEADER}))
            await rig.send_raw(a_message(f"no JSON: {BODY}", type="Work"))
            await rig.app.post(Work(n=0), headers={"authorization": HEADER})
            await rig.clock.advance(30)
            assert set(rig.started) == {0, 1, 2, 3}
        text = telemetry.prometheus_text()

    exported = b"".join(body for _, body in collector.bodies)
    assert b"ValueError" in exported
    assert b"ConnectionFailed" in exported
    assert b"hunter2" not in exported
    assert b"hunter2" not in text
    assert "hunter2" not in "".join(
        record.getMessage() for record in caplog.records if "opentelemetry" in record.name
    )
