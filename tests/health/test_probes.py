"""Probes over sockets: alive whatever the broker does, ready when every subscription works."""

from __future__ import annotations

import asyncio

import pytest

from pump import App, Subscription, UnacceptableLimit
from pump.errors import ConnectionFailed, UnacceptableLimitReached
from pump.health import HealthOptions
from pump.loop.receiving import Receiver
from pump.loop.workers import Workers
from pump.stores.spill import MemorySpill
from pump.testing.builders import a_message

from ..core.notes import Defect, with_notes
from ..core.rig import Gate, Rig, Work
from .bench import serving, start
from .caller import call

pytestmark = pytest.mark.usefixtures("quiet")

AWAY = ConnectionFailed("broker", "away")
LIVE, READY = "/livez", "/readyz"


async def test_when_it_runs_then_it_is_alive_and_ready_and_says_everything() -> None:
    """R60."""
    gate = Gate()
    async with serving(Rig(gate, concurrency=2, prefetch=3)) as bench:
        await bench.rig.send(*range(10))
        await bench.rig.clock.advance(4)

        assert await bench.status_of(LIVE, READY) == [200, 200]
        document = (await bench.get("/health")).json()
        [subscription] = document.pop("subscriptions")
        assert document == {
            "live": True,
            "ready": True,
            "draining": False,
            "reasons": [],
            "version": document["version"],
            "gateway": "memory://",
            "uptime_s": 4.0,
        }
        counts = subscription.pop("counts")
        assert subscription == {
            "name": "orders",
            "queue": "orders",
            "state": "running",
            "asked": "run",
            "concurrency": 2,
            "in_hand": 5,
            "running": 2,
            "last_poll_age_s": 4.0,
            "unanswered_s": 0.0,
            "failed_polls": 0,
            "last_error": None,
        }
        assert counts["received"] == 5
        gate.open()
        await bench.rig.clock.settle()
        document = (await bench.get("/health")).json()
        assert document["subscriptions"][0]["counts"]["processed"] == 10


async def test_when_it_has_not_started_then_it_is_alive_and_not_ready() -> None:
    async with serving(Rig(), starts=False) as bench:
        assert await bench.status_of(LIVE, READY) == [200, 503]
        await start(bench.rig)

        assert await bench.status_of(LIVE, READY) == [200, 200]


async def test_when_the_broker_is_away_at_the_start_then_it_says_so_and_recovers() -> None:
    rig = Rig()
    rig.gateway.fail("ensure", AWAY)
    async with serving(rig) as bench:
        await rig.clock.advance(3_600)

        assert await bench.status_of(LIVE) == [200]
        reply = await bench.get(READY)
        assert reply.status == 503
        assert reply.json()["reasons"] == [
            "orders: its queues are not made yet (ConnectionFailed: cannot reach broker: away)"
        ]

        rig.gateway.heal("ensure")
        await rig.clock.advance(60)
        assert await bench.status_of(LIVE, READY) == [200, 200]


async def test_when_the_broker_goes_away_then_it_is_alive_not_ready_and_recovers() -> None:
    """R51: an outage must not have the process killed."""
    rig = Rig()
    async with serving(rig) as bench:
        rig.gateway.fail("receive", AWAY)
        await rig.clock.advance(21)
        reply = await bench.get(READY)
        assert reply.status == 503
        assert "receives in a row have failed (ConnectionFailed" in reply.json()["reasons"][0]
        await rig.clock.advance(6 * 3_600)
        assert await bench.status_of(LIVE, READY) == [200, 503]

        rig.gateway.heal("receive")
        await rig.clock.advance(90)

        assert await bench.status_of(LIVE, READY) == [200, 200]


async def test_when_a_receive_hangs_then_it_is_not_ready_after_its_wait_and_the_grace() -> None:
    rig = Rig()
    async with serving(rig) as bench:
        rig.gateway.hang("receive")
        await rig.clock.advance(20 + 49)
        assert await bench.status_of(READY) == [200]

        await rig.clock.advance(2)

        assert await bench.status_of(LIVE, READY) == [200, 503]


async def test_when_the_hands_are_full_for_hours_then_it_is_still_ready() -> None:
    """It asks the broker nothing, so the broker owes it nothing."""
    gate = Gate()
    async with serving(Rig(gate, concurrency=1, prefetch=0)) as bench:
        await bench.rig.send(1, 2)
        await bench.rig.clock.advance(7_200)

        assert await bench.status_of(LIVE, READY) == [200, 200]
        document = (await bench.get("/health")).json()
        assert document["subscriptions"][0]["last_poll_age_s"] == 7_200
        gate.open()


async def test_when_queues_are_assumed_then_it_is_ready_once_the_broker_has_answered() -> None:
    rig = Rig(make_channels="assume")
    async with serving(rig) as bench:
        assert await bench.status_of(READY) == [503]

        await rig.clock.advance(21)

        assert await bench.status_of(READY) == [200]


async def test_when_paused_or_drained_by_name_then_it_is_ready_as_it_was_told() -> None:
    rig = Rig()
    with_notes(rig)
    async with serving(rig) as bench:
        rig.dispatcher.pause("orders")
        rig.dispatcher.drain("notes")
        await rig.clock.advance(3_600)

        assert await bench.status_of(LIVE, READY) == [200, 200]
        document = (await bench.get("/health")).json()
        assert [each["state"] for each in document["subscriptions"]] == ["paused", "drained"]


async def test_when_the_app_drains_then_it_is_not_ready_and_still_alive() -> None:
    gate = Gate()
    async with serving(Rig(gate)) as bench:
        await bench.rig.send(1)
        await bench.rig.clock.settle()
        await bench.rig.drain()

        assert await bench.status_of(LIVE, READY) == [200, 503]
        found = (await bench.get(READY)).json()
        assert found["draining"] is True
        assert found["reasons"] == ["the app is draining", "orders: it is draining"]
        gate.open()


async def test_when_one_has_stopped_for_good_then_it_is_not_ready_and_not_killed_either() -> None:
    """Killed and restarted it would go on emptying its queue into the bin."""
    rig = Rig(unacceptable_limit=UnacceptableLimit(count=1))
    with_notes(rig)
    async with serving(rig) as bench:
        await rig.send_raw(a_message(b"?", type="Work"))
        await rig.clock.advance(3_600)

        assert await bench.status_of(LIVE, READY) == [200, 503]
        [reason] = (await bench.get(READY)).json()["reasons"]
        assert "orders: it has stopped (UnacceptableLimitReached" in reason
        with pytest.raises(UnacceptableLimitReached):
            await rig.finish()


async def test_when_a_pump_breaks_on_and_on_then_it_is_not_alive_and_its_error_not_quoted() -> None:
    """R57: what others raise may quote a secret."""
    rig = Rig()
    async with serving(rig) as bench:
        rig.gateway.fail("receive", Defect("password=hunter2"))
        await rig.clock.advance(30)
        assert await bench.status_of(LIVE, READY) == [200, 503]
        await rig.clock.advance(301)

        reply = await bench.get(LIVE)
        assert reply.status == 503
        assert reply.json()["reasons"][0].startswith("orders: has been breaking for ")
        assert b"hunter2" not in reply.body + (await bench.get("/health")).body
        assert (await bench.get("/health")).json()["subscriptions"][0]["last_error"] == "Defect"

        rig.gateway.heal("receive")
        await rig.clock.advance(130)
        assert await bench.status_of(LIVE, READY) == [200, 200]


async def test_when_a_pump_breaks_now_and_then_it_is_alive() -> None:
    rig = Rig()
    async with serving(rig) as bench:
        for _ in range(10):
            rig.gateway.fail("receive", Defect("bug"), times=1)
            await rig.clock.advance(100)
            assert await bench.status_of(LIVE) == [200]

        assert rig.dispatcher.performers[0].stats.restarts == 10


async def test_when_pollers_are_gone_by_a_defect_of_ours_then_it_is_not_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def end_without_a_word(receiver: Receiver, group: asyncio.TaskGroup) -> None: ...

    monkeypatch.setattr(Receiver, "_poll", end_without_a_word)
    rig = Rig()
    async with serving(rig) as bench:
        assert await bench.status_of(LIVE) == [200]
        await rig.clock.advance(59)
        assert await bench.status_of(LIVE) == [200]
        await rig.clock.advance(2)

        reply = await bench.get(LIVE)

        assert reply.status == 503
        assert reply.json()["reasons"] == ["orders: has not tried to receive for 61 s"]


async def test_when_every_worker_is_lost_then_it_is_not_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R93: messages in flight, nothing running."""
    monkeypatch.setattr(Workers, "wake", lambda self: None)
    rig = Rig()
    async with serving(rig) as bench:
        await rig.send(1, 2)
        await rig.clock.settle()
        assert await bench.status_of(LIVE) == [200]
        await rig.clock.advance(61)

        reply = await bench.get(LIVE)

        assert reply.status == 503
        assert reply.json()["reasons"] == [
            "orders: has had 2 messages in flight that nothing handles for 61 s"
        ]


async def test_when_the_broker_is_away_then_no_look_between_two_tries_takes_it_for_stuck() -> None:
    rig = Rig()
    async with serving(rig) as bench:
        rig.gateway.fail("receive", AWAY)
        for _ in range(40):
            await rig.clock.advance(10)
            assert await bench.status_of(LIVE) == [200]


async def test_when_it_was_paused_for_hours_then_it_is_ready_as_soon_as_it_is_resumed() -> None:
    rig = Rig()
    async with serving(rig) as bench:
        rig.dispatcher.pause("orders")
        await rig.clock.advance(7_200)
        rig.dispatcher.resume("orders")
        await rig.clock.settle()

        assert await bench.status_of(LIVE, READY) == [200, 200]


async def test_when_a_failing_one_was_drained_for_hours_then_it_is_alive_when_resumed() -> None:
    rig = Rig()
    async with serving(rig) as bench:
        rig.gateway.fail("receive", Defect("bug"))
        await rig.clock.advance(120)
        rig.dispatcher.drain("orders")
        await rig.clock.advance(7_200)
        assert await bench.status_of(LIVE) == [200]

        rig.gateway.heal("receive")
        rig.dispatcher.resume("orders")
        await rig.clock.settle()

        assert await bench.status_of(LIVE) == [200]


# -- paths --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/healthz", "/livez/", "/subscriptions", "/drain", "//"])
async def test_when_there_is_no_such_path_then_those_there_are_are_named(path: str) -> None:
    async with serving(Rig()) as bench:
        reply = await bench.get(path)

        assert reply.status == 404
        assert "/livez, /readyz, /health, /metrics" in reply.json()["error"]


@pytest.mark.parametrize("path", ["/livez", "/drain", "/subscriptions/orders/pause"])
async def test_when_something_is_posted_to_the_health_endpoint_then_nothing_changes(
    path: str,
) -> None:
    async with serving(Rig()) as bench:
        reply = await call(bench.health_url, "POST", path)

        assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD")
        assert bench.rig.states == ["running"]
        assert not bench.dispatcher.is_draining


async def test_when_head_is_asked_for_then_the_verdict_is_the_same() -> None:
    async with serving(Rig(), starts=False) as bench:
        reply = await call(bench.health_url, "HEAD", READY)

        assert (reply.status, reply.body) == (503, b"")


async def test_when_the_gateway_has_a_password_then_it_is_not_shown() -> None:
    """R57."""
    rig = Rig()
    app = App("memory://user:hunter2@broker", spill=MemorySpill(), clock=rig.clock)
    app.register(Work, rig.behaviour)
    app.subscribe(Subscription(queue="orders", request=Work))
    async with app:
        dispatcher = app.dispatcher()
        async with app.serving_health(dispatcher, HealthOptions(port=0)) as served:
            assert served.health is not None
            assert served.control is None
            reply = await call(served.health, "GET", "/health")

    assert reply.json()["gateway"] == "memory://broker"
    assert b"hunter2" not in reply.body


# -- metrics ------------------------------------------------------------------------------------


async def test_when_the_telemetry_has_no_metrics_then_it_says_so() -> None:
    async with serving(Rig()) as bench:
        reply = await bench.get("/metrics")

        assert reply.status == 404
        assert "telemetry" in reply.json()["error"]


async def test_when_the_telemetry_has_metrics_then_they_are_shown_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R60."""

    class Exposed:
        def prometheus_text(self) -> bytes:
            return b"pump_messages_completed 3\n"

    async with serving(Rig()) as bench:
        monkeypatch.setattr(type(bench.dispatcher.runtime), "telemetry", Exposed())
        reply = await bench.get("/metrics")

        assert (reply.status, reply.body) == (200, b"pump_messages_completed 3\n")
        assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
