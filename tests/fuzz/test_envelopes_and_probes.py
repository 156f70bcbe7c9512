"""Sealed bodies, trace contexts, and what a health endpoint is asked."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace
from structlog.testing import capture_logs

from pump.crypto import Encryption, Key, KeyRing, NonceTracking, PlaintextPolicy
from pump.crypto.envelope import associated_data, is_envelope, make_header, moment, parse
from pump.errors import CryptoError
from pump.http.guard import is_own_name
from pump.http.wire import Answer, Refused, parse_head
from pump.message import Message
from pump.observability import vocabulary
from pump.observability.otel.tracing import Propagation
from pump.observability.telemetry import Counters
from pump.testing import VirtualClock, a_delivery

from ..core.rig import Rig
from ..gateways.sqs.messages import messages
from ..health.bench import serving
from ..health.caller import connect
from .exploring import Effort, Target, each_of, explore
from .mutations import any_text, mutated
from .sqs_host import statuses

RING = KeyRing(Key("2026", bytes(range(32))))
MESSAGE = Message(body=b'{"order_id": "o-1"}', id="m", group="g", correlation_id="c")
HEADER = make_header(b"2026", 1_750_000_000_000, bytes(12))
ENVELOPES = [
    HEADER + bytes(16),
    make_header(b"k" * 300, 2**64 - 1, bytes(12)) + bytes(100),
    b"QRE1\x01\x00\x00",
]
HEADS = [
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nUser-Agent: curl\r\n\r\n",
    b"HEAD /ready?x=1 HTTP/1.0\r\n\r\n",
    b"POST /subscriptions/a%2Fb/scale HTTP/1.1\r\nHost: [::1]:8080\r\nContent-Length: 17\r\n"
    b"Content-Type: application/json\r\n\r\n",
]
CONTROL = [
    HEADS[0],
    HEADS[2].replace(b"a%2Fb", b"orders") + b'{"concurrency":5}',
    HEADS[2].replace(b"a%2Fb/scale", b"orders/pause").replace(b"17", b"2") + b"{}",
    b"POST /drain HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\r\n",
    b"GET /subscriptions/orders HTTP/1.1\r\nHost: localhost\r\n\r\n",
]
TRACES = [
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
    "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
]


def take_apart(body: bytes) -> None:
    """What was taken apart is all of it, in its place."""
    found = parse(body)
    assert is_envelope(body)
    assert found.header + found.ciphertext == body
    assert moment(found.encrypted_at_ms).tzinfo is not None
    assert associated_data(found.header, MESSAGE).startswith(len(found.header).to_bytes(4, "big"))


def unseal(fed: tuple[bytes, str, str | None]) -> None:
    """With every rule on; nothing but what a CryptoError says gets out."""
    body, id_, group = fed
    message = replace(MESSAGE, body=body, id=id_, group=group)

    async def run() -> None:
        encryption = Encryption(
            KeyRing(Key("2026", bytes(range(32)))),
            max_age=timedelta(days=1),
            plaintext=PlaintextPolicy.ALLOW_WITH_ALERT,
            nonces=NonceTracking(),
            clock=VirtualClock(),
        )
        await encryption.start(Counters(), None)
        try:
            await encryption.decrypt(a_delivery(message))
        finally:
            await encryption.aclose()

    with capture_logs():
        asyncio.run(run())


def seal_and_unseal(message: Message) -> None:
    """R62: any message, with any ids, comes back as it was."""

    async def run() -> None:
        encryption = Encryption(KeyRing(Key("2026", bytes(range(32)))), clock=VirtualClock())
        await encryption.start(Counters(), None)
        sealed = await encryption.encrypt(message, "q")
        assert await encryption.decrypt(a_delivery(sealed)) == message
        await encryption.aclose()

    asyncio.run(run())


def read_trace(headers: dict[str, str]) -> None:
    """A context that cannot be read is none; one that can is written as it was read."""
    propagation = Propagation()
    message = Message(body=b"", headers=headers)
    context, creator = propagation.origin_of(message)
    propagation.put_into(message, context)
    assert creator is None or creator.is_valid


def read_head(head: bytes) -> None:
    try:
        request = parse_head(head)
        Answer.of({"path": request.path}).as_bytes()
        is_own_name(request.headers.get("host", ""))
    except Refused as refused:
        answer = Answer.refusing(refused)
        assert 400 <= answer.status < 500
        answer.as_bytes()


TARGETS = [
    Target(
        name="envelope: spoilt",
        inputs=mutated(ENVELOPES) | st.binary() | st.binary().map(b"QRE1\x01".__add__),
        feed=take_apart,
        refusals=(CryptoError,),
        share=2,
    ),
    Target(
        name="unsealing: spoilt",
        inputs=st.tuples(
            mutated(ENVELOPES) | st.binary(), st.just("m") | any_text, st.none() | any_text
        ),
        feed=unseal,
        refusals=(CryptoError,),
    ),
    Target(name="sealing: there and back", inputs=messages, feed=seal_and_unseal),
    Target(
        name="trace context: spoilt",
        inputs=st.dictionaries(
            st.sampled_from(["traceparent", "tracestate", "baggage"]), mutated(TRACES) | any_text
        ),
        feed=read_trace,
        share=2,
    ),
    Target(
        name="probe's head: spoilt", inputs=mutated(HEADS) | st.binary(), feed=read_head, share=2
    ),
    Target(
        name="probe's Host: spoilt",
        inputs=mutated(["localhost:8080", "[::1]:1", "127.0.0.1"]) | any_text,
        feed=is_own_name,
    ),
]


@each_of(TARGETS)
def test_when_it_is_anything_then_it_is_understood_or_refused(
    target: Target, effort: Effort
) -> None:
    """R63, R66, R72: an envelope is opened, or a CryptoError says why not."""
    explore(target, effort)


def test_when_a_health_or_control_endpoint_hears_anything_then_it_goes_on(effort: Effort) -> None:
    """A refusal is always a 4xx: a 5xx would tell a probe that the app is at fault."""

    async def talk(url: str, data: bytes) -> bytes:
        reader, writer = await connect(url)
        writer.write(data)
        writer.write_eof()
        heard = await reader.read()
        writer.close()
        return heard

    async def run(data: bytes) -> None:
        faults: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
        with capture_logs() as logs:
            async with serving(Rig()) as bench:
                for url in (bench.health_url, bench.control_url):
                    heard = await talk(url, data)
                    assert all(status < 500 for status in statuses(heard)), heard
                assert json.loads((await bench.get("/health")).body)
        faults += [line for line in logs if line["event"] == vocabulary.PROBE_FAILED]
        assert not faults, faults

    target = Target(
        name="socket",
        inputs=mutated(CONTROL) | st.binary(),
        feed=lambda data: asyncio.run(run(data)),
        share=0.5,
    )
    explore(target, effort)
