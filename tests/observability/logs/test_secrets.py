"""Secrets are put everywhere, and looked for in all that is printed; and they still work."""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateways.sqs import AwsSettings, Credentials, SqsGateway, SqsSettings, TransportKind
from gateways.sqs_server.server import SqsServer
from pump import Message, dead_letter, headers
from pump.cli.settings import EnvironmentSettings
from pump.clock import SYSTEM_CLOCK
from pump.crypto import Encryption, Key, KeyRing
from pump.errors import ConfigurationError, ConnectionFailed, PumpError
from pump.gateway_url import gateway_from_url
from pump.processes.ipc import RunOptions
from pump.secret import revealed
from pump.serving import ServerOptions
from pump.stores.spill import MemorySpill, SqliteSpill
from tests.core.rig import Rig, Work
from tests.gateways.sqs.scripted import URL, ScriptedTransport

from .conftest import SetUp
from .secrets_everywhere import (
    ACCESS_KEY_ID,
    AWS_SECRET,
    AWS_TOKEN,
    BODY,
    HEADER,
    KEY,
    PASSWORD,
    Heard,
    Shop,
    leaked,
)

Opened = AbstractAsyncContextManager[Any]


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """AWS's credentials are in the environment, and nowhere else."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", AWS_SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", AWS_TOKEN)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")


@asynccontextmanager
async def memory(tmp_path: Path) -> AsyncIterator[Any]:
    yield f"memory://user:{PASSWORD}@shop"


@asynccontextmanager
async def local(tmp_path: Path) -> AsyncIterator[Any]:
    yield f"local://{tmp_path}/queues"


@asynccontextmanager
async def sqs(tmp_path: Path) -> AsyncIterator[Any]:
    """A server that takes nothing but requests signed with the secret of the environment."""
    server = SqsServer(ServerOptions(port=0, credentials={ACCESS_KEY_ID: AWS_SECRET}))
    await server.open()
    try:
        yield SqsGateway(SqsSettings(aws=AwsSettings(endpoint_url=server.endpoint)))
    finally:
        await server.aclose()


GATEWAYS: Mapping[str, Callable[[Path], Opened]] = {"memory": memory, "local": local, "sqs": sqs}


@pytest.mark.parametrize("hears", ["our lines", "everybody"])
@pytest.mark.parametrize("format", ["json", "console"])
@pytest.mark.parametrize("gateway", GATEWAYS)
async def test_when_an_app_runs_then_no_secret_is_printed_and_all_of_them_work(
    gateway: str,
    format: str,
    hears: str,
    tmp_path: Path,
    set_up: SetUp,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """R57, R61: bodies, headers, errors that quote them, URLs and the environment; at DEBUG."""
    written = set_up("debug", format)
    heard = Heard()
    if hears == "everybody":
        # The application's own handler, which is given our lines as they are.
        logging.getLogger().addHandler(heard)

    async with GATEWAYS[gateway](tmp_path) as url:
        shop = Shop(url, spill=MemorySpill())
        async with shop.app:
            await shop.pump()
            seen = [repr(shop.app), repr(shop.app.gateway), repr(shop.subscription)]
            seen += map(repr, shop.dead)

    printed = [written.getvalue(), capsys.readouterr().out, *heard.told, *seen]
    assert leaked(*printed, pickle.dumps(shop.subscription)) == []
    # It was all there to be printed: every fate has its line, also the careless ones.
    assert written.getvalue().count("message.settled") == len(shop.outcomes)
    assert written.getvalue().count("observer.failed") == len(shop.outcomes)
    assert written.getvalue().count("cannot reach amqp://[redacted]@broker/") >= len(shop.seen)
    # And it all still works: handlers read their bodies, dead letters hold theirs (R28).
    assert f"{BODY} fine" in shop.seen
    assert len(shop.dead) == 5
    assert all(BODY in each.message.body.decode() for each in shop.dead)
    assert all(HEADER in each.message.headers["authorization"] for each in shop.dead)
    details = [each.message.headers[headers.REJECTION_DETAIL] for each in shop.dead]
    assert f"no such order: {BODY} refused" in details


@pytest.mark.parametrize("format", ["json", "console"])
async def test_when_payloads_are_encrypted_then_no_key_is_printed(
    format: str, set_up: SetUp
) -> None:
    """R57, R69."""
    written = set_up("debug", format)
    encryption = Encryption(KeyRing(Key("k1", KEY), wipe_on_close=False))
    shop = Shop("memory://", spill=MemorySpill(), encryption=encryption)

    async with shop.app:
        await shop.pump()

    assert leaked(written.getvalue(), repr(encryption), repr(shop.dead)) == []
    assert f"{BODY} fine" in shop.seen
    assert not any(BODY.encode() in each.message.body for each in shop.dead)
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(encryption)


@pytest.mark.parametrize("kind", TransportKind)
async def test_when_aws_refuses_then_nothing_of_the_request_is_printed(
    kind: TransportKind, set_up: SetUp
) -> None:
    """R57: a wrong secret, by both SDKs."""
    written = set_up("debug")
    server = SqsServer(ServerOptions(port=0, credentials={ACCESS_KEY_ID: "another"}))
    await server.open()
    credentials = Credentials(
        access_key_id=ACCESS_KEY_ID, secret_access_key=AWS_SECRET, session_token=AWS_TOKEN
    )
    settings = SqsSettings(
        aws=AwsSettings(endpoint_url=server.endpoint, transport=kind, credentials=credentials)
    )
    shop = Shop(SqsGateway(settings), spill=MemorySpill())
    try:
        async with shop.app:
            with pytest.raises(PumpError) as caught:
                await shop.app.post(Message(body=BODY.encode()), queue="orders")
    finally:
        await server.aclose()

    assert leaked(written.getvalue(), repr(caught.value), caught.value, repr(settings)) == []


@pytest.mark.parametrize("format", ["json", "console"])
async def test_when_the_broker_and_the_disk_fail_then_what_they_quote_is_not_printed(
    format: str, set_up: SetUp, tmp_path: Path
) -> None:
    """R57, R61: receiving, settling, routing, spilling, and a defect of the pump itself."""
    written = set_up("debug", format)
    trouble = ConnectionFailed(f"amqp://guest:{PASSWORD}@broker/", f"password={PASSWORD}")

    async def fail(work: Work) -> None:
        raise ValueError(BODY)

    rig = Rig(fail, failure=dead_letter())
    # A folder where the file should be: nothing can be stored there.
    rig.app._spill = SqliteSpill(tmp_path)
    async with rig:
        await rig.start()
        await rig.send(1)
        rig.gateway.fail("send", trouble)
        rig.gateway.fail("settle", trouble, times=1)
        await rig.clock.advance(30)
        rig.gateway.fail("receive", trouble, times=1)
        await rig.clock.advance(60)
        rig.gateway.fail("receive", RuntimeError(str(trouble)), times=1)
        await rig.clock.advance(60)

    events = ("receive", "routing", "spill", "settle", "pump")
    assert [each for each in events if f"{each}.failed" not in written.getvalue()] == []
    assert "cannot reach amqp://[redacted]@broker/" in written.getvalue()
    assert leaked(written.getvalue()) == []


@pytest.mark.parametrize(
    "url",
    [
        f"kafka://guest:{PASSWORD}@host/",
        f"amqp://guest:{PASSWORD}@host/a/b",
        f"nats://guest:{PASSWORD}@host?colour=blue",
        f"sb://guest:{PASSWORD}@host?colour=blue",
        f"sqs://key:{PASSWORD}@eu-west-1",
    ],
)
def test_when_a_url_is_refused_then_the_error_hides_its_secret(url: str) -> None:
    """R57, R56."""
    with pytest.raises(ConfigurationError) as caught:
        gateway_from_url(url, SYSTEM_CLOCK)

    assert leaked(str(caught.value), repr(caught.value)) == []


@pytest.mark.parametrize("material", [KEY + b"!", KEY.decode(), KEY[:-1]])
def test_when_a_key_is_refused_then_the_error_hides_it(material: Any) -> None:
    """R57, R69."""
    with pytest.raises(ConfigurationError) as caught:
        Key("k1", material)

    assert leaked(str(caught.value), repr(caught.value)) == []
    assert KEY[:16].decode() not in str(caught.value)


def test_when_settings_are_printed_then_their_secrets_are_not() -> None:
    """R57: and they are still in there, to be used."""
    settings = EnvironmentSettings.from_environment(
        {**os.environ, "PUMP_GATEWAY": f"amqp://u:{PASSWORD}@h/"}
    )
    options = RunOptions(target="shop:app", gateway=revealed(settings.gateway))
    server = ServerOptions(credentials={ACCESS_KEY_ID: AWS_SECRET})

    assert leaked(repr(options), repr(server)) == []
    assert [secret for secret in leaked(repr(settings)) if secret != ACCESS_KEY_ID] == []
    assert PASSWORD in str(options.gateway)
    assert settings.aws_secret_access_key == AWS_SECRET


def a_record(body: str) -> dict[str, Any]:
    """A message as Lambda hands it over."""
    return {
        "messageId": "m-1",
        "receiptHandle": "r-1",
        "body": body,
        "attributes": {"ApproximateReceiveCount": "1", "SenderId": "AIDA"},
        "messageAttributes": {"note": {"dataType": "String", "stringValue": HEADER}},
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:eu-west-1:123456789012:orders",
        "awsRegion": "eu-west-1",
    }


@pytest.mark.parametrize("format", ["json", "console"])
def test_when_a_function_is_invoked_then_nothing_of_its_event_is_printed(
    format: str, set_up: SetUp, capsys: pytest.CaptureFixture[str]
) -> None:
    """R57, R61: handled, failed, unreadable; and an event that is none of SQS's."""
    written = set_up("debug", format)
    aws = ScriptedTransport(get_queue_url=[{"QueueUrl": URL + "dead"}] * 9)
    shop = Shop(SqsGateway(transport=aws), make_channels="assume", spill=MemorySpill())
    function = shop.app.lambda_handler()
    bodies = [
        f'{{"text": "{BODY}"}}',
        f'{{"text": "{BODY}", "fate": "failing"}}',
        f'{{"text": "{BODY}", "fate": "refused"}}',
        f'{{"text": "{BODY}"',
    ]

    try:
        for body in bodies:
            function({"Records": [a_record(body)]})
        with pytest.raises(ConfigurationError) as caught:
            function({"detail": BODY, "headers": HEADER})
        with pytest.raises(ConfigurationError) as unheard:
            function({"Records": [{"body": BODY, "eventSource": "aws:s3"}]})
    finally:
        function.close()

    printed = written.getvalue() + capsys.readouterr().out
    assert leaked(printed, caught.value, repr(caught.value), repr(unheard.value)) == []
    assert printed.count("message.settled") == 4
    assert shop.seen == [BODY] * 3
