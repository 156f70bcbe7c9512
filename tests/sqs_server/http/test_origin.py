"""A server without signatures answers programs on this machine, not web pages in its browser."""

from __future__ import annotations

import pytest

from gateways.sqs_server.http.exchange import refusal_of, refusal_of_change

NOBODY: frozenset[str] = frozenset()


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:9324",
        "[::1]:9324",
        "localhost",
        "sqs.eu-west-1.localhost:9324",
        "host.docker.internal:9324",
        "queues:9324",
        "message_queue",
        "sqs.us-east-1.localhost.localstack.cloud:4566",
        "10.0.0.5:9324",
        "",
    ],
)
def test_when_an_sdk_uses_a_local_name_then_it_is_served(host: str) -> None:
    assert refusal_of({"host": host}, NOBODY) is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:9324",
        "localhost.evil.example",
        "[::1",
        "127.0.0.1.x.y",
        "evil.local",
        "evil.lan:9324",
        "evil.internal",
        "sqs.us-east-1.amazonaws.com",
        "evil.s3-website-us-east-1.amazonaws.com",
    ],
)
def test_when_a_strangers_name_is_bound_to_loopback_then_it_is_refused(host: str) -> None:
    refusal = refusal_of({"host": host}, NOBODY)

    assert refusal is not None
    assert refusal.query_code == "AccessDenied"


@pytest.mark.parametrize("name", ["sqs.dev.example", "sqs.us-east-1.amazonaws.com"])
def test_when_a_name_is_allowed_then_it_is_served(name: str) -> None:
    assert refusal_of({"host": f"{name}:80"}, frozenset({name})) is None


@pytest.mark.parametrize("referer", ["https://evil.example/page?q", "null", "", "about:blank"])
def test_when_a_page_of_another_site_refers_to_us_then_it_is_refused(referer: str) -> None:
    assert refusal_of({"host": "localhost", "referer": referer}, NOBODY) is not None
    own = {"host": "localhost", "referer": "http://localhost:3000/page#top"}
    assert refusal_of(own, NOBODY) is None


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "OPTIONS"])
@pytest.mark.parametrize("operation", ["CreateQueue", "SendMessage", "ReceiveMessage"])
def test_when_an_image_asks_for_a_change_then_it_is_refused(method: str, operation: str) -> None:
    """A browser that sends neither Origin nor Sec-Fetch-Site says nothing but its Host."""
    refusal = refusal_of_change(method, {"host": "localhost"}, operation)

    assert refusal is not None
    assert refusal.query_code == "AccessDenied"
    assert operation in refusal.message
    assert refusal_of_change(method, {"authorization": "AWS4-HMAC-SHA256 x"}, operation) is None
    assert refusal_of_change("POST", {"host": "localhost"}, operation) is None
    assert refusal_of_change(method, {"host": "localhost"}, "ListQueues") is None


@pytest.mark.parametrize("scheme", ["Basic eDp5", "Bearer x", "Negotiate x", "", "AWS4"])
def test_when_an_images_address_has_a_user_then_what_the_browser_makes_of_it_is_no_signature(
    scheme: str,
) -> None:
    """`<img src="http://x:y@127.0.0.1:9324/?Action=CreateQueue…">`."""
    headers = {"host": "localhost", "authorization": scheme}

    assert refusal_of_change("GET", headers, "CreateQueue") is not None
    assert refusal_of_change("GET", headers, "ListQueues") is None


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "",
        "https://",
        "file://",
        "http://203.0.113.9",
        "http://192.168.1.9:3000",
        "http://machine",
        "http://evil.s3-website-us-east-1.amazonaws.com",
        "http://user@localhost",
        "http://evil.example\\@localhost",
        "http://localhost/path",
        "http://localhost.evil.example",
    ],
)
def test_when_a_page_of_another_site_asks_then_it_is_refused(origin: str) -> None:
    assert refusal_of({"host": "localhost", "origin": origin}, NOBODY) is not None


def test_when_a_page_of_this_machine_asks_then_it_is_served() -> None:
    for origin in (
        "http://localhost:3000",
        "http://127.0.0.1:8080",
        "https://[::1]",
        "http://a.localhost",
    ):
        assert refusal_of({"host": "localhost", "origin": origin}, NOBODY) is None


def test_when_another_site_loads_an_image_from_here_then_it_is_refused() -> None:
    headers = {"host": "localhost", "sec-fetch-site": "cross-site"}

    assert refusal_of(headers, NOBODY) is not None
