"""An app serves its health from before its queues are made until after its drain."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import structlog.testing

from pump.errors import ConfigurationError, ConnectionFailed
from pump.health import HealthOptions

from ..core.rig import Gate, Rig
from .caller import call

pytestmark = pytest.mark.usefixtures("quiet")


def address_of(lines: list[structlog.typing.EventDict], event: str) -> str:
    [address] = [line["address"] for line in lines if line["event"] == event]
    assert isinstance(address, str)
    return address


async def test_when_the_app_is_served_then_its_health_is_until_it_has_drained() -> None:
    gate = Gate()
    rig = Rig(gate)
    rig.gateway.fail("ensure", ConnectionFailed("broker", "away"), times=1)
    with structlog.testing.capture_logs() as lines:
        serving = asyncio.create_task(rig.app.serve(health=HealthOptions(port=0, control_port=0)))
        while not [line for line in lines if line["event"] == "control.served"]:
            await rig.clock.settle()
    url = address_of(lines, "health.served")
    assert address_of(lines, "control.served") != url
    assert (await call(url, "GET", "/readyz")).status == 503
    await rig.clock.advance(60)
    assert (await call(url, "GET", "/readyz")).status == 200

    await rig.send(1)
    await rig.clock.settle()
    signal.raise_signal(signal.SIGTERM)
    await rig.clock.settle()
    assert (await call(url, "GET", "/readyz")).json()["draining"] is True
    assert not serving.done()
    gate.open()
    await rig.clock.advance(5)

    await serving
    with pytest.raises(ConnectionError):
        await call(url, "GET", "/livez")


async def test_when_no_health_is_asked_for_then_nothing_listens() -> None:
    rig = Rig()
    async with rig, rig.app.serving_health(rig.app.dispatcher(), None) as served:
        assert (served.health, served.control) == (None, None)


async def test_when_the_port_is_taken_then_the_app_does_not_start() -> None:
    taken = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    rig = Rig()

    with pytest.raises(ConfigurationError, match=f"{port}.*choose another port"):
        await rig.app.serve(health=HealthOptions(port=port))

    assert rig.record.calls["receive"] == 0
    taken.close()
    await taken.wait_closed()


async def test_when_control_cannot_listen_then_the_health_endpoint_is_closed_again(
    tmp_path: Path,
) -> None:
    rig = Rig()
    options = HealthOptions(port=0, control_socket=tmp_path / "no" / "pump.sock")
    with (
        structlog.testing.capture_logs() as lines,
        pytest.raises(ConfigurationError, match="name a path"),
    ):
        await rig.app.serve(health=options)

    with pytest.raises(ConnectionError):
        await call(address_of(lines, "health.served"), "GET", "/livez")


async def test_when_control_is_on_a_socket_then_it_works_as_on_a_port(tmp_path: Path) -> None:
    rig = Rig()
    options = HealthOptions(control_socket=tmp_path / "pump.sock")
    async with rig:
        dispatcher = rig.app.dispatcher()
        async with rig.app.serving_health(dispatcher, options) as served:
            assert served.control == f"unix:{tmp_path}/pump.sock"
            reply = await call(served.control, "POST", "/subscriptions/orders/pause")

            assert (reply.status, reply.json()["asked"]) == (200, "pause")
    assert not (tmp_path / "pump.sock").exists()


def test_when_pump_is_imported_then_no_server_is_loaded() -> None:
    program = (
        "import sys, pump; [getattr(pump, name) for name in pump.__all__];"
        "print([name for name in sys.modules if name.startswith(('pump.health', 'pump.http'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "[]"
