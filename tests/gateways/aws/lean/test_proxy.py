"""Proxies: found and used as the SDK would; what it does with certificates of theirs, it does."""

from __future__ import annotations

import pytest

from gateways._aws.sdk_transport import Transport
from pump.errors import ConnectionFailed

from ..conftest import Connect
from ..fake_aws import FakeAws, Wait

FAR = "http://aws.example:8080"


@pytest.fixture(autouse=True)
def _proxy(monkeypatch: pytest.MonkeyPatch, aws: FakeAws) -> None:
    monkeypatch.setenv("HTTP_PROXY", aws.url)
    monkeypatch.setenv("http_proxy", aws.url)


async def _list(transport: Transport) -> None:
    await transport.call("sqs", "list_queues", {})


async def test_when_the_environment_names_a_proxy_then_requests_go_through_it(
    aws: FakeAws, connect: Connect
) -> None:
    """R34: signed for the service, not for the proxy."""
    await _list(connect(endpoint_url=FAR))

    [seen] = aws.seen
    assert seen.path == f"{FAR}/"
    assert seen.headers["host"] == "aws.example:8080"
    assert seen.headers["user-agent"].startswith("lean/")


async def test_when_the_host_is_exempt_then_requests_go_straight_to_it(
    aws: FakeAws, connect: Connect
) -> None:
    await _list(connect(endpoint_url=aws.url.replace("127.0.0.1", "localhost")))

    assert aws.seen[0].path == "/"


async def test_when_the_proxy_wants_a_name_and_a_password_then_it_gets_them(
    aws: FakeAws, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, aws.url.replace("//", "//me:pass@"))

    await _list(connect(endpoint_url=FAR))

    assert aws.seen[0].headers["proxy-authorization"] == "Basic bWU6cGFzcw=="


async def test_when_the_proxy_does_not_answer_then_the_call_fails_in_time(
    aws: FakeAws, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R51: asked for a tunnel, it takes the connection and says nothing."""
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, aws.url)
    aws.always = Wait()
    transport = connect(endpoint_url="https://aws.example", max_attempts=1)
    # Shorter than settings allow, so that the test does not take that long.
    object.__setattr__(transport._sdk._settings, "read_timeout_s", 0.05)  # type: ignore[attr-defined]

    with pytest.raises(ConnectionFailed, match="timeout"):
        await _list(transport)

    assert [seen.method for seen in aws.seen] == ["CONNECT"]
