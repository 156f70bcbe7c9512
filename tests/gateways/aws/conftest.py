"""Fixtures: a scripted AWS, and transports of every kind to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import botocore.loaders
import botocore.session
import pytest

from gateways._aws.sdk import transport_for
from gateways._aws.sdk_transport import Transport
from gateways._aws.settings import AwsSettings, Credentials, TransportKind
from pump.clock import SYSTEM_CLOCK, Clock

from .fake_aws import FakeAws

ACCESS_KEY_ID = "AKIAIOSFODNN7EXAMPLE"
SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
TOKEN = "IQoJb3JpZ2luX2VjEXAMPLETOKEN"


@pytest.fixture(autouse=True)
def _no_other_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep the machine's own AWS set-up out."""
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")


@pytest.fixture
def cold_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask for this to have service models read from their files, as in a new process."""
    monkeypatch.setattr(botocore.session, "create_loader", botocore.loaders.create_loader)


@pytest.fixture(params=list(TransportKind))
def kind(request: pytest.FixtureRequest) -> TransportKind:
    """Every test that asks for it runs over both SDKs and the lean transport (R34)."""
    assert isinstance(request.param, TransportKind)
    return request.param


@pytest.fixture
async def aws() -> AsyncIterator[FakeAws]:
    async with FakeAws() as server:
        yield server


SettingsFor = Callable[..., AwsSettings]


@pytest.fixture
def settings_for(kind: TransportKind, aws: FakeAws) -> SettingsFor:
    """Settings that lead to the scripted AWS, with changes."""

    def build(**changes: Any) -> AwsSettings:
        usual: dict[str, Any] = {
            "region": "eu-west-1",
            "endpoint_url": aws.url,
            "transport": kind,
            "credentials": Credentials(
                access_key_id=ACCESS_KEY_ID, secret_access_key=SECRET, session_token=TOKEN
            ),
        }
        return AwsSettings(**(usual | changes))

    return build


Connect = Callable[..., Transport]


@pytest.fixture
async def connect(settings_for: SettingsFor) -> AsyncIterator[Connect]:
    """Makes transports to the scripted AWS, and closes them at the end."""
    async with AsyncExitStack() as stack:

        def build(clock: Clock = SYSTEM_CLOCK, **changes: Any) -> Transport:
            transport = transport_for(settings_for(**changes), clock)
            stack.push_async_callback(transport.aclose)
            return transport

        yield build
