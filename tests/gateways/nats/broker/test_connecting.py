"""Connecting: as whom, how safely, to what; and what is said when it cannot be (R51, R56, R57)."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gateways.nats import NatsGateway, NatsSettings
from pump import versions
from pump.errors import (
    AccessDenied,
    ConfigurationError,
    ConnectionFailed,
    MessageTooLarge,
    PumpError,
    UnsupportedOperation,
)
from pump.testing.builders import a_message, a_subscription, ack
from tests.brokers.nats_server import NatsServer

from .bench import Bench
from .certificates import make_certificate

pytestmark = pytest.mark.broker

SECRET = "s3cret-p@ss"
PASSWORD = 'authorization { user: ada, password: "s3cret-p@ss" }'
OwnNats = Callable[..., NatsServer]


def with_login(server: NatsServer, login: str) -> str:
    return server.url.replace("nats://", f"nats://{login}@")


async def use(gateway: NatsGateway, queue: str) -> None:
    """Send, receive and ack one message."""
    await gateway.producer(queue).send([a_message()])
    consumer = gateway.consumer(a_subscription(queue))
    [delivery] = await consumer.receive(max_count=1, wait_s=30)
    assert not await consumer.settle([ack(delivery)])


async def work(url: str) -> None:
    """Use a queue that is made for it."""
    bench = Bench(url)
    async with bench.gateway() as gateway:
        await bench.make(gateway)
        await use(gateway, bench.queue)


async def refused(url: str) -> PumpError:
    """Why it does not open."""
    gateway = NatsGateway(NatsSettings.from_url(url))
    try:
        with pytest.raises(PumpError) as failure:
            await gateway.open()
    finally:
        await gateway.aclose()
    return failure.value


async def test_when_nobody_listens_then_opening_says_where() -> None:
    """R51."""
    with closing(socket.socket()) as place:
        place.bind(("127.0.0.1", 0))
        port = place.getsockname()[1]

        error = await refused(f"nats://127.0.0.1:{port}")

    assert isinstance(error, ConnectionFailed)
    assert f"127.0.0.1:{port}" in str(error)


async def test_when_one_of_several_servers_answers_then_that_is_enough(nats: NatsServer) -> None:
    """R51."""
    with closing(socket.socket()) as place:
        place.bind(("127.0.0.1", 0))
        gone = place.getsockname()[1]

        await work(f"nats://127.0.0.1:{gone},127.0.0.1:{nats.port}")


async def test_when_the_password_is_right_then_work_is_done(own_nats: OwnNats) -> None:
    """R57: a secret that is never shown still works."""
    await work(with_login(own_nats(PASSWORD), "ada:s3cret-p%40ss"))


@pytest.mark.parametrize("login", ["ada:wr0ng-p%40ss", "wr0ng-p%40ss", ""])
async def test_when_the_login_is_wrong_then_access_is_denied_and_no_secret_shown(
    own_nats: OwnNats, login: str
) -> None:
    """R57."""
    server = own_nats(PASSWORD)

    error = await refused(with_login(server, login) if login else server.url)

    assert isinstance(error, AccessDenied)
    assert "p@ss" not in f"{error!r} {error} {error.__cause__!r}"


async def test_when_the_server_wants_a_token_then_a_user_alone_is_one(own_nats: OwnNats) -> None:
    await work(with_login(own_nats(f'authorization {{ token: "{SECRET}" }}'), "s3cret-p%40ss"))


async def test_when_tls_is_asked_for_then_the_servers_certificate_is_checked(
    own_nats: OwnNats, tmp_path: Path
) -> None:
    """R56: trusted, it works; not trusted, nothing is sent."""
    certificate, key = make_certificate(tmp_path)
    server = own_nats(f"tls {{ cert_file: '{certificate}', key_file: '{key}' }}\n{PASSWORD}")
    url = with_login(server, "ada:s3cret-p%40ss")

    await work(f"{url}?tls_ca={certificate}")

    for distrusting in (url, f"{url}?tls=true"):
        error = await refused(distrusting)
        assert isinstance(error, ConnectionFailed)
        assert "certificate" in str(error).lower()


async def test_when_the_server_has_no_tls_then_a_gateway_that_wants_it_sends_no_password(
    nats: NatsServer,
) -> None:
    """R57."""
    error = await refused(f"{nats.url}?tls=true")

    assert isinstance(error, ConnectionFailed)
    assert "TLS" in str(error)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("creds={}", "credentials_file"),
        ("tls_ca={}", "tls_ca_file"),
        ("tls_cert={}&tls_key={}", "tls_cert_file"),
    ],
)
async def test_when_a_file_cannot_be_read_then_the_setting_is_named(
    nats: NatsServer, tmp_path: Path, query: str, field: str
) -> None:
    """R56."""
    missing = tmp_path / "missing"

    error = await refused(f"{nats.url}?{query.replace('{}', str(missing))}")

    assert isinstance(error, ConfigurationError)
    assert error.field == f"NatsSettings.{field}"


async def test_when_jetstream_is_off_then_the_remedy_is_named(own_nats: OwnNats) -> None:
    """R56."""
    server = own_nats(
        "accounts { A: { users: [{ user: a, password: b }] }, SYS: {} }\nsystem_account: SYS"
    )
    gateway = NatsGateway(NatsSettings.from_url(with_login(server, "a:b")))
    await gateway.open()
    try:
        with pytest.raises(ConfigurationError, match="JetStream"):
            await gateway.admin().queues()
    finally:
        await gateway.aclose()


@pytest.mark.parametrize("denied", ["orders", "$JS.API.CONSUMER.MSG.NEXT.orders.pump", "$JS.ACK.>"])
async def test_when_an_operation_is_not_permitted_then_it_is_access_denied(
    own_nats: OwnNats, denied: str
) -> None:
    """R51: at once, and not as a timeout: sends, receives and acks alike."""
    server = own_nats(
        "authorization { users: [{ user: root, password: p }, { user: ada, password: p, "
        f'permissions: {{ publish: {{ deny: "{denied}" }} }} }}] }}'
    )
    async with (
        Bench(with_login(server, "root:p"), "orders").gateway() as root,
        Bench(with_login(server, "ada:p"), "orders").gateway() as gateway,
    ):
        await Bench(server.url, "orders").make(root)
        await root.producer("orders").send([a_message()])

        with pytest.raises(AccessDenied):
            await use(gateway, "orders")


async def test_when_the_server_takes_less_then_larger_messages_are_refused_unsent(
    own_nats: OwnNats,
) -> None:
    """R58: the limit is the server's, and counts headers too."""
    bench = Bench(own_nats("max_payload: 4096").url)
    async with bench.gateway() as gateway:
        await bench.make(gateway)

        with pytest.raises(MessageTooLarge):
            await gateway.producer(bench.queue).send([a_message(b"x" * 4_000)])
        await gateway.producer(bench.queue).send([a_message(b"x" * 3_500)])

        assert gateway.capabilities.max_body_bytes == 4_096


async def test_when_the_server_is_too_old_then_it_is_said_on_connecting(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R77: no such server can be had, so this one counts as old."""
    monkeypatch.setattr("gateways.nats.connection.MINIMUM_SERVER", (99, 0))

    error = await refused(nats.url)

    assert isinstance(error, ConfigurationError)
    assert ">= 99.0" in str(error)


@pytest.mark.parametrize(("found", "said"), [(None, "pip install"), ("2.1.0", ">= 2.9")])
async def test_when_the_sdk_is_missing_or_old_then_the_cure_is_named(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch, found: str | None, said: str
) -> None:
    """R77."""
    monkeypatch.setattr(versions, "installed", lambda package: found)

    error = await refused(nats.url)

    assert isinstance(error, ConfigurationError)
    assert said in str(error)


async def test_when_a_stream_keeps_no_schedules_then_a_delay_is_unsupported(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R76: as on a server before 2.12, whose streams cannot."""
    monkeypatch.setattr("gateways.nats.gateway.SCHEDULING_SERVER", (99, 0))
    bench = Bench(nats.url)
    async with bench.gateway() as gateway:
        await bench.make(gateway)

        with pytest.raises(UnsupportedOperation, match=r"2\.12"):
            await gateway.producer(bench.queue).send([a_message()], delay_s=1.0)
        assert (await gateway.admin().stats(bench.queue)).visible == 0


async def test_when_a_gateway_is_closed_then_it_can_be_opened_again(nats: NatsServer) -> None:
    bench = Bench(nats.url)
    gateway = NatsGateway(NatsSettings.from_url(nats.url))
    await gateway.open()
    await gateway.aclose()
    with pytest.raises(ConnectionFailed, match="closed"):
        await gateway.producer(bench.queue).send([a_message()])
    await gateway.open()

    await bench.make(gateway)

    assert not await gateway.consumer(a_subscription(bench.queue)).receive(max_count=1, wait_s=0.0)
    await gateway.aclose()
