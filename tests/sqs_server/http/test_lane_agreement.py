"""Whatever comes, both lanes say the same: the fast one leaves to aiohttp what it is unsure of."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given, settings, strategies as st

from gateways.sqs_server.http import HttpLimits
from gateways.sqs_server.http.connection import OrdinaryReader
from gateways.sqs_server.protocol import Call

from .conftest import json_request
from .line import Line

REQUEST = json_request(b'{"MaxResults": 3}')
ODD_HEADERS = [
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: identity",
    b"Expect: 100-continue",
    b"Connection: close",
    b"Connection: Upgrade",
    b"Upgrade: websocket",
    b"Content-Encoding: gzip",
    b"Content-Length: 17",
    b"Host: other",
    b"X-Twice: 1\r\nx-twice: 2",
    b"X-Folded: a\r\n b",
    b"X-Bytes: \xc3\xa9",
    b"X-Tab: a\tb",
    b"X-Padded:   a",
    b"X-Padded: a ",
    b"X-Close:a",
    b"X-Empty:",
    b"X Spaced: a",
    b"X-Colon : a",
    b": nameless",
    b"No colon",
    b"X-Return: a\rb",
    b"X-Feed: a\nb",
    b"X-Null: \x00",
    b"X-Long: " + b"y" * 20_000,
    b"\r\n".join(b"X-%d: y" % n for n in range(70)),
    b"Proxy-Connection: keep-alive",
]


@pytest.mark.parametrize("header", ODD_HEADERS)
async def test_when_a_header_is_odd_then_aiohttp_judges_it(header: bytes) -> None:
    line, other = Line(), Line(has_fast_lane=False)
    request = json_request(b'{"MaxResults": 3}', "ListQueues", header)

    await line.say(request)
    await other.say(request)

    assert line.fast == []
    assert line.heard == other.heard


@pytest.mark.parametrize(
    "first",
    [
        b"POST / HTTP/1.0",
        b"POST / HTTP/1.2",
        b"POST  / HTTP/1.1",
        b"POST / HTTP/1.1 ",
        b"post / HTTP/1.1",
        b"PUT / HTTP/1.1",
        b"POST * HTTP/1.1",
        b"POST http://localhost/ HTTP/1.1",
        b"POST /a b HTTP/1.1",
        b"POST /a#b HTTP/1.1",
        b"POST /a\xff HTTP/1.1",
        b"\r\nPOST / HTTP/1.1",
    ],
)
async def test_when_the_request_line_is_odd_then_aiohttp_judges_it(first: bytes) -> None:
    line, other = Line(), Line(has_fast_lane=False)
    request = REQUEST.replace(b"POST / HTTP/1.1", first)

    await line.say(request)
    await other.say(request)

    assert line.fast == []
    assert line.heard == other.heard


@pytest.mark.parametrize("length", [b"+17", b"-17", b"0x11", b"1 7", b"17,17", b"", b"9" * 30])
async def test_when_the_length_is_odd_then_aiohttp_judges_it(length: bytes) -> None:
    line, other = Line(), Line(has_fast_lane=False)
    request = REQUEST.replace(b"Length: 17", b"Length: " + length)

    await line.say(request)
    await other.say(request)

    assert line.fast == []
    assert line.heard == other.heard


NAMES = st.one_of(
    st.sampled_from(
        [b"Origin", b"Accept", b"Content-Type", b"authorization", b"X-Amz-Target", b"Connection"]
    ),
    st.from_regex(rb"\A[A-Za-z0-9!#$%&'*+.^_`|~-]{1,20}\Z"),
    st.binary(min_size=1, max_size=5),
)
VALUES = st.one_of(
    st.sampled_from(
        [b"http://localhost:1", b"application/json", b"keep-alive", b"Keep-Alive", b"close", b""]
    ),
    st.just(b"AWS4-HMAC-SHA256 Credential=123456789012/20260101/eu-west-1/sqs/aws4_request, X=y"),
    st.from_regex(rb"\A[ -~]{0,30}\Z"),
    st.binary(max_size=10),
)
HEADERS = st.lists(st.tuples(NAMES, st.sampled_from([b": ", b":", b":  "]), VALUES), max_size=4)
TARGETS = st.one_of(
    st.just(b"/"),
    st.sampled_from([b"/000000000000/q", b"/?Action=ListQueues", b"/_health", b"//x/y?z=%ff"]),
    st.from_regex(rb"\A/[!-~]{0,20}\Z"),
)
BODIES = st.one_of(
    st.just(b"{}"),
    st.sampled_from(
        [b"Action=ListQueues&MaxResults=3", b"Action=DeleteQueue", b'{"MaxResults": "x"}']
    ),
    st.binary(max_size=20),
)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Mostly whole ordinary requests; some with a byte that was changed, or cut short."""
    body = draw(BODIES)
    lines = [b"POST %s HTTP/1.1" % draw(TARGETS), b"Host: localhost"]
    lines += [b"".join(parts) for parts in draw(HEADERS)]
    if draw(st.booleans()):
        lines.append(b"X-Amz-Target: AmazonSQS.ListQueues")
    lines.append(b"Content-Length: %d" % len(body))
    request = b"\r\n".join([*lines, b"", body])
    if draw(st.integers(0, 3)) == 0:
        at = draw(st.integers(0, len(request) - 1))
        request = request[:at] + draw(st.binary(max_size=2)) + request[at + 1 :]
    return request


def one_by_one(data: bytes) -> Iterator[bytes]:
    """Cut between requests: of a chunk that is garbage further on, aiohttp serves nothing."""
    reader = OrdinaryReader(HttpLimits())
    while (request := reader.read(data)) is not None and request.size < len(data):
        yield data[: request.size]
        data = data[request.size :]
    yield data


@settings(deadline=None, max_examples=150)
@given(chunks=st.lists(requests(), min_size=1, max_size=3), is_one=st.booleans())
def test_when_anything_comes_then_both_lanes_say_the_same(
    chunks: list[bytes], is_one: bool
) -> None:
    said = [b"".join(chunks)] if is_one else chunks

    async def hear(said: Iterable[bytes], *, has_fast_lane: bool) -> tuple[bytes, bool, list[Call]]:
        line = Line(has_fast_lane=has_fast_lane)
        await line.say(*said)
        heard, is_closing = line.heard, line.transport.is_closing()
        await line.hang_up()
        return heard, is_closing, line.operations.calls

    async def compare() -> None:
        apart = [piece for chunk in said for piece in one_by_one(chunk)]
        fast = await hear(said, has_fast_lane=True)
        assert fast == await hear(apart, has_fast_lane=False)

    asyncio.run(compare())
