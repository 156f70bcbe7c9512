"""Getting in: wrong credentials, hosts and queues say what is wrong; TLS is spoken."""

from __future__ import annotations

import asyncio
import datetime
import logging
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gateways.rabbitmq import RabbitMQGateway, RabbitMQSettings, from_url
from pump.errors import AccessDenied, ConnectionFailed, QueueMismatch
from pump.subscription import MakeChannels, QueueSpec
from pump.testing.builders import a_message, a_subscription
from tests.gateways.work import make

from .conftest import OpenGateway

pytestmark = pytest.mark.broker


async def test_when_the_password_is_wrong_then_access_is_denied_and_nothing_tells_it(
    open_gateway: OpenGateway, rabbitmq_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """R57."""
    caplog.set_level(logging.DEBUG)

    with pytest.raises(AccessDenied) as caught:
        await open_gateway(rabbitmq_url.replace("guest:guest", "guest:s3cret"))

    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in caplog.text


async def test_when_there_is_no_such_virtual_host_then_the_error_says_so(
    open_gateway: OpenGateway, rabbitmq_url: str
) -> None:
    """R56: as far as the SDK lets us know."""
    url = rabbitmq_url.rsplit("/", 1)[0] + "/nowhere"

    with pytest.raises(AccessDenied, match="virtual host") as caught:
        await open_gateway(url)

    assert "nowhere" in str(caught.value)


async def test_when_nobody_listens_then_the_connection_has_failed() -> None:
    """R51: at once, and closing what never opened is no error."""
    gateway = from_url("amqp://127.0.0.1:1/?connect_timeout=2")

    with pytest.raises(ConnectionFailed):
        await gateway.open()
    await gateway.aclose()


async def test_when_a_queue_was_made_otherwise_then_the_mismatch_is_named(
    gateway: RabbitMQGateway, name: str
) -> None:
    """R22."""
    await make(gateway, a_subscription(name))
    other = QueueSpec(name=name, options={"arguments": {"x-max-length": 5}})

    with pytest.raises(QueueMismatch, match="x-max-length"):
        await gateway.admin().ensure(other, MakeChannels.CREATE)


async def test_when_the_broker_speaks_tls_then_messages_go_through_it(
    rabbitmq_url: str, name: str, tmp_path: Path
) -> None:
    """`amqps://`, with an authority of one's own; without it the broker is not trusted."""
    settings = RabbitMQSettings.from_url(rabbitmq_url)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate = await asyncio.to_thread(make_certificate, tmp_path)
    await asyncio.to_thread(context.load_cert_chain, certificate)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs = await asyncio.open_connection("127.0.0.1", settings.port)
        await asyncio.gather(pass_on(reader, theirs[1]), pass_on(theirs[0], writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    url = rabbitmq_url.replace(f"127.0.0.1:{settings.port}", f"localhost:{port}")
    url = url.replace("amqp://", "amqps://")
    trusting = RabbitMQGateway(RabbitMQSettings.from_url(f"{url}?ca_file={certificate}"))
    await trusting.open()
    await make(trusting, a_subscription(name))
    await trusting.producer(name).send([a_message("sealed")])
    [received] = await trusting.consumer(a_subscription(name)).receive(max_count=1, wait_s=30)
    assert received.message.body == b"sealed"
    await trusting.aclose()

    with pytest.raises(ConnectionFailed):
        await from_url(url).open()
    server.close()


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except (OSError, ssl.SSLError):
        return
    finally:
        writer.close()


def make_certificate(folder: Path) -> Path:
    """A certificate for localhost that vouches for itself, with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=36500))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "broker.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + private)
    return path
