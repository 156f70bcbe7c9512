"""The request parser: what it takes, and that it takes nothing else and never breaks."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, settings, strategies as st

from pump.http.wire import MAX_BODY_BYTES, MAX_HEAD_BYTES, Answer, Refused, Request, parse_head


def head(line: str = "GET /livez HTTP/1.1", *fields: str) -> bytes:
    return "\r\n".join([line, "Host: pod", *fields, "", ""]).encode("latin-1")


def refusal(raw: bytes) -> Refused:
    with pytest.raises(Refused) as caught:
        parse_head(raw)
    return caught.value


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/", ("",)),
        ("/livez", ("livez",)),
        ("/livez?verbose=1", ("livez",)),
        ("/subscriptions/a%2Fb/pause", ("subscriptions", "a/b", "pause")),
        ("/subscriptions/%C3%A9t%C3%A9", ("subscriptions", "été")),
        ("/subscriptions/..", ("subscriptions", "..")),
        ("//livez", ("", "livez")),
    ],
)
def test_when_the_target_is_a_path_then_its_segments_are_decoded(
    target: str, path: tuple[str, ...]
) -> None:
    assert parse_head(head(f"GET {target} HTTP/1.1")).path == path


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_when_it_is_a_plain_request_then_it_is_taken(method: str, version: str) -> None:
    assert parse_head(head(f"{method} /livez {version}")) == Request(
        method=method, path=("livez",), headers={"host": "pod"}
    )


def test_when_http_1_0_has_no_host_then_it_is_taken_and_1_1_is_not() -> None:
    assert parse_head(b"GET /livez HTTP/1.0\r\n\r\n").path == ("livez",)
    assert refusal(b"GET /livez HTTP/1.1\r\n\r\n").status == 400


def test_when_a_header_has_space_around_its_value_then_that_is_no_part_of_it() -> None:
    assert parse_head(head("GET / HTTP/1.1", "X-A: \t b c \t")).headers["x-a"] == "b c"


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"\r\n\r\n", 400),
        (b"GET\r\n\r\n", 400),
        (b"GET /livez\r\nHost: a\r\n\r\n", 400),
        (b"GET  /livez HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1 \r\nHost: a\r\n\r\n", 400),
        (b" GET /livez HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /livez http/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /livez HTTP/2.0\r\nHost: a\r\n\r\n", 400),
        (b"GET livez HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET http://a/livez HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /a\x00b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /a\nb HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /%ff HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"get / HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        (b"OPTIONS / HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        (b"PRI * HTTP/2.0\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n: a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\n folded: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\x00\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: \xff\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4097\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: " + b"9" * 500 + b"\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n", 417),
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n", 400),
        (b"GET /" + b"a" * MAX_HEAD_BYTES + b" HTTP/1.1\r\nHost: a\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: a\r\n" * 70 + b"\r\n", 431),
    ],
)
def test_when_it_is_not_a_plain_request_then_it_is_refused_as_the_senders_fault(
    raw: bytes, status: int
) -> None:
    assert refusal(raw).status == status


def test_when_a_method_is_refused_then_those_that_are_not_are_named() -> None:
    refused = refusal(head("DELETE / HTTP/1.1"))

    assert refused.headers == {"Allow": "GET, HEAD, POST"}


def test_when_proxies_repeat_a_header_of_theirs_then_the_probe_is_still_answered() -> None:
    request = parse_head(head("GET / HTTP/1.1", "X-Forwarded-For: a", "X-Forwarded-For: b"))

    assert request.path == ("",)


def test_when_a_body_is_as_long_as_it_may_be_then_it_is_taken() -> None:
    request = parse_head(head("POST / HTTP/1.1", f"Content-Length: {MAX_BODY_BYTES}"))

    assert request.body_length == MAX_BODY_BYTES


LINES = st.sampled_from(
    [
        *("GET /livez HTTP/1.1", "POST /drain HTTP/1.1", "HEAD / HTTP/1.0", "GET / HTTP/9.9"),
        *("Host: a", "Host: localhost:1", "Content-Length: 3", "Content-Length: 99999999999"),
        *("Transfer-Encoding: chunked", "Origin: null", " x", "X: y", "a:b:c", ":", "\x00", "é"),
    ]
)


@given(raw=st.binary(max_size=400))
@example(raw=b"")
@settings(max_examples=300)
def test_fuzz_when_any_bytes_come_then_they_are_a_request_or_a_4xx(raw: bytes) -> None:
    _parse_or_refuse(raw)


@given(lines=st.lists(st.one_of(LINES, st.text(max_size=20)), max_size=8), end=st.booleans())
@settings(max_examples=300)
def test_fuzz_when_lines_are_shuffled_then_they_are_a_request_or_a_4xx(
    lines: list[str], end: bool
) -> None:
    raw = "\r\n".join(lines).encode("utf-8", "surrogatepass")
    _parse_or_refuse(raw + b"\r\n\r\n" if end else raw)


@given(target=st.text(max_size=60))
@settings(max_examples=300)
def test_fuzz_when_a_path_is_anything_then_it_is_decoded_or_a_4xx(target: str) -> None:
    _parse_or_refuse(f"GET /{target} HTTP/1.1\r\nHost: a\r\n\r\n".encode("utf-8", "surrogatepass"))


def _parse_or_refuse(raw: bytes) -> None:
    request = _parsed(raw)
    if isinstance(request, Refused):
        assert 400 <= request.status < 500
        assert json.loads(Answer.refusing(request).body)["error"]
        assert Answer.refusing(request).as_bytes().count(b"\r\n\r\n") == 1
        return
    assert request.method in ("GET", "HEAD", "POST")
    assert 0 <= request.body_length <= MAX_BODY_BYTES
    assert request.path
    assert all(name == name.lower() and name.isascii() for name in request.headers)


def _parsed(raw: bytes) -> Request | Refused:
    try:
        return parse_head(raw)
    except Refused as refused:
        return refused
