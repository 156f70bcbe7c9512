"""Control over sockets: what it does, what it refuses, and to whom it does not listen."""

from __future__ import annotations

import asyncio
import re
from ipaddress import ip_address
from typing import Any

import pytest
import structlog.testing
from hypothesis import example, given, settings, strategies as st

from pump import Subscription, UnacceptableLimit
from pump.errors import UnacceptableLimitReached
from pump.http.guard import is_own_name
from pump.testing.builders import a_message

from ..core.notes import with_notes
from ..core.rig import Gate, Rig, Work
from .bench import serving
from .caller import call, send

pytestmark = pytest.mark.usefixtures("quiet")


async def test_when_paused_and_resumed_over_http_then_the_pump_does_so() -> None:
    async with serving(Rig()) as bench:
        rig = bench.rig
        paused = await bench.post("/subscriptions/orders/pause")
        await rig.send(1)
        await rig.clock.advance(60)
        assert rig.started == []

        resumed = await bench.post("/subscriptions/orders/resume")
        await rig.clock.settle()

        assert rig.ended == [1]
        assert (paused.status, paused.json()["state"]) == (200, "paused")
        assert (resumed.status, resumed.json()["state"]) == (200, "running")


async def test_when_drained_over_http_then_only_that_one_is() -> None:
    rig = Rig(Gate())
    with_notes(rig)
    async with serving(rig) as bench:
        await rig.send(1)
        await rig.clock.settle()
        reply = await bench.post("/subscriptions/orders/drain", {})

        assert (reply.status, reply.json()["state"], reply.json()["running"]) == (
            200,
            "draining",
            1,
        )
        assert [each.state for each in rig.dispatcher.performers] == ["draining", "running"]


async def test_when_scaled_over_http_then_as_many_run_at_once() -> None:
    gate = Gate()
    async with serving(Rig(gate, concurrency=1, prefetch=0)) as bench:
        await bench.rig.send(*range(10))
        reply = await bench.post("/subscriptions/orders/scale", {"concurrency": 4})
        await bench.rig.clock.settle()

        assert (reply.status, reply.json()["concurrency"]) == (200, 4)
        assert bench.rig.running_count == 4
        gate.open()


async def test_when_the_app_is_drained_over_http_then_it_ends_after_its_work() -> None:
    gate = Gate()
    async with serving(Rig(gate)) as bench:
        await bench.rig.send(1)
        await bench.rig.clock.settle()
        reply = await bench.post("/drain")
        assert (reply.status, reply.json()["draining"]) == (202, True)
        assert (await bench.get("/readyz")).status == 503

        gate.open()
        await bench.rig.clock.settle()

        assert bench.rig.running is not None
        assert bench.rig.running.done()
        assert bench.rig.ended == [1]


async def test_when_the_subscriptions_are_asked_for_then_everything_is_told() -> None:
    rig = Rig()
    with_notes(rig)
    async with serving(rig) as bench:
        all_of_them = await call(bench.control_url, "GET", "/subscriptions")
        one = await call(bench.control_url, "GET", "/subscriptions/notes")

        assert all_of_them.json() == (await bench.get("/health")).json()
        assert one.json() == all_of_them.json()["subscriptions"][1]


async def test_when_a_name_has_a_slash_then_it_is_written_with_its_escape() -> None:
    rig = Rig()
    rig.app.subscribe(Subscription(queue="more", name="a/b ü", request=Work))
    async with serving(rig) as bench:
        reply = await bench.post("/subscriptions/a%2Fb%20%C3%BC/pause")

        assert (reply.status, reply.json()["name"]) == (200, "a/b ü")


async def test_when_something_is_done_then_the_log_says_what() -> None:
    """R61."""
    async with serving(Rig()) as bench:
        with structlog.testing.capture_logs() as lines:
            await bench.post("/subscriptions/orders/scale", {"concurrency": 4})

        [line] = [line for line in lines if line["event"] == "control.asked"]
        assert line == {
            "event": "control.asked",
            "log_level": "info",
            "operation": "scale",
            "subscription": "orders",
            "concurrency": 4,
        }


async def test_when_many_ask_at_once_then_each_is_answered_and_the_last_word_counts() -> None:
    async with serving(Rig()) as bench:
        actions = ["pause", "resume", "pause", "resume"] * 4
        replies = await asyncio.gather(
            *(bench.post(f"/subscriptions/orders/{action}") for action in actions)
        )
        assert {reply.status for reply in replies} == {200}

        await bench.post("/subscriptions/orders/resume")
        await bench.rig.send(1)
        await bench.rig.clock.settle()

        assert bench.rig.ended == [1]


# -- refusing -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "status", "says"),
    [
        ("POST", "/subscriptions/nobody/pause", 404, "use one of orders"),
        ("POST", "/subscriptions/nobody/scale", 404, "use one of orders"),
        ("GET", "/subscriptions/nobody", 404, "use one of orders"),
        ("POST", "/subscriptions/orders/explode", 404, "pause|resume|drain|scale"),
        ("POST", "/subscriptions/orders", 405, "use GET, HEAD"),
        ("GET", "/subscriptions/orders/pause", 405, "use POST"),
        ("GET", "/drain", 405, "use POST"),
        ("GET", "/", 404, "GET /subscriptions"),
        ("GET", "/health", 404, "GET /subscriptions"),
        ("POST", "/subscriptions/orders/pause/now", 404, "GET /subscriptions"),
    ],
)
async def test_when_it_cannot_be_done_then_the_answer_names_what_can(
    method: str, path: str, status: int, says: str
) -> None:
    async with serving(Rig()) as bench:
        reply = await call(bench.control_url, method, path)

        assert (reply.status, says in reply.json()["error"]) == (status, True)
        assert bench.rig.states == ["running"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (None, 400),
        (b"", 400),
        (b"{", 400),
        (b"\xff\xfe", 400),
        (b"[" * 4_000, 400),
        (b'{"concurrency": ' + b"9" * 4_000 + b"}", 422),
        ([], 422),
        ({}, 422),
        ({"concurrency": 0}, 422),
        ({"concurrency": -1}, 422),
        ({"concurrency": 10_001}, 422),
        ({"concurrency": 1.5}, 422),
        ({"concurrency": True}, 422),
        ({"concurrency": "4"}, 422),
        ({"concurrency": None}, 422),
        ({"concurrency": 4, "force": True}, 422),
    ],
)
async def test_when_a_size_makes_no_sense_then_nothing_is_scaled(body: Any, status: int) -> None:
    async with serving(Rig(concurrency=3)) as bench:
        reply = await bench.post("/subscriptions/orders/scale", body)

        assert reply.status == status
        assert reply.json()["error"]
        assert bench.dispatcher.performers[0].concurrency == 3


@pytest.mark.parametrize("path", ["/subscriptions/orders/pause", "/drain"])
@pytest.mark.parametrize("body", [{"force": True}, [], b"{", "all"])
async def test_when_settings_are_sent_that_nobody_reads_then_nothing_is_done(
    path: str, body: Any
) -> None:
    async with serving(Rig()) as bench:
        reply = await bench.post(path, body)

        assert reply.status in (400, 422)
        assert bench.rig.states == ["running"]


async def test_when_it_has_stopped_for_good_then_that_is_a_conflict_with_its_remedy() -> None:
    rig = Rig(unacceptable_limit=UnacceptableLimit(count=1))
    with_notes(rig)
    async with serving(rig) as bench:
        await rig.send_raw(a_message(b"?", type="Work"))
        await rig.clock.settle()
        replies = [
            await bench.post("/subscriptions/orders/resume"),
            await bench.post("/subscriptions/orders/scale", {"concurrency": 3}),
        ]

        assert [reply.status for reply in replies] == [409, 409]
        assert all("restart the app" in reply.json()["error"] for reply in replies)
        with pytest.raises(UnacceptableLimitReached):
            await rig.finish()


async def test_when_the_app_drains_then_resuming_is_a_conflict() -> None:
    async with serving(Rig(Gate())) as bench:
        await bench.rig.send(1)
        await bench.rig.clock.settle()
        await bench.rig.drain()

        reply = await bench.post("/subscriptions/orders/resume")

        assert reply.status == 409
        assert "the whole app drains" in reply.json()["error"]


# -- web pages ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"host": "evil.example"}, 403),
        ({"host": "evil.example:9091"}, 403),
        ({"host": "localhost.evil.example"}, 403),
        ({"host": "127.0.0.1.evil.example"}, 403),
        ({"host": "10.0.0.1"}, 403),
        ({"host": "localhost@evil.example"}, 403),
        ({"host": ""}, 403),
        ({"content_type": "text/plain"}, 415),
        ({"content_type": "application/x-www-form-urlencoded"}, 415),
        ({"content_type": "multipart/form-data; boundary=application/json"}, 415),
        ({"content_type": "text/plain;application/json"}, 415),
        ({"content_type": None}, 415),
    ],
)
async def test_when_a_web_page_may_have_sent_it_then_nothing_is_done(
    headers: dict[str, str | None], status: int
) -> None:
    async with serving(Rig()) as bench:
        reply = await bench.post("/subscriptions/orders/pause", **headers)

        assert reply.status == status
        assert "access-control-allow-origin" not in reply.headers
        assert bench.rig.states == ["running"]


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "localhost"},
        {"host": "LOCALHOST:9091"},
        {"host": "127.0.0.1:1"},
        {"host": "[::1]:9091"},
        {"sec_fetch_site": "none"},
        {"content_type": "Application/JSON; charset=utf-8"},
    ],
)
async def test_when_a_program_of_this_machine_sent_it_then_it_is_done(
    headers: dict[str, str | None],
) -> None:
    async with serving(Rig()) as bench:
        assert (await bench.post("/subscriptions/orders/pause", **headers)).status == 200


async def test_when_a_page_has_rebound_its_name_then_it_cannot_even_read() -> None:
    async with serving(Rig()) as bench:
        reply = await call(bench.control_url, "GET", "/subscriptions", host="evil.example")

        assert reply.status == 403
        assert b"orders" not in reply.body


async def test_when_a_browser_asks_first_whether_it_may_then_it_may_not() -> None:
    async with serving(Rig()) as bench:
        raw = (
            b"OPTIONS /drain HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: https://evil.example\r\n"
            b"Access-Control-Request-Method: POST\r\n\r\n"
        )
        reply = await send(bench.control_url, raw)

        assert reply.status == 405
        assert not [name for name in reply.headers if name.startswith("access-control")]


async def test_when_http_1_0_comes_without_a_host_then_it_is_refused() -> None:
    async with serving(Rig()) as bench:
        reply = await send(bench.control_url, b"GET /subscriptions HTTP/1.0\r\n\r\n")

        assert reply.status == 403


@given(name=st.one_of(st.text(max_size=30), st.from_regex(r"\[?[0-9a-f:.]{1,20}\]?(:[0-9]{1,5})?")))
@example(name="127.0.0.1:80")
@example(name="[::1]")
@example(name="[localhost]")
@settings(max_examples=200)
def test_fuzz_when_a_host_is_anything_then_it_is_judged_and_strangers_are_not_let_in(
    name: str,
) -> None:
    if is_own_name(name):
        host = re.sub(r":[0-9]+$", "", name.lower()).strip("[]")
        assert host == "localhost" or ip_address(host).is_loopback


@given(suffix=st.from_regex(r"[a-z0-9.-]{1,20}", fullmatch=True))
def test_fuzz_when_a_name_only_begins_like_this_machines_then_it_is_a_strangers(
    suffix: str,
) -> None:
    assert not is_own_name(f"localhost.{suffix}")
    assert not is_own_name(f"127.0.0.1.{suffix}")
