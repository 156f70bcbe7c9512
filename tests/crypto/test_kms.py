"""Data keys of a real KMS: LocalStack's."""

from __future__ import annotations

import fcntl
import os
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from pump.crypto import (
    Encryption,
    FallbackKeys,
    Key,
    KeyNotFound,
    KeyRing,
    KeyUnavailable,
    KmsKeys,
    KmsOptions,
)
from pump.crypto.envelope import parse
from pump.errors import ConfigurationError
from pump.observability.telemetry import Counters
from tests.brokers import localstack
from tests.brokers.aws_account import AwsAccount

from . import launch_kms
from .desk import MESSAGE, OpenDesk

pytestmark = pytest.mark.broker


@pytest.fixture(scope="session")
def kms_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A LocalStack with KMS, which the shared one does without; one for all workers of a run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "localstack-kms"
    folder.mkdir(exist_ok=True)
    launcher = SimpleNamespace(__file__=launch_kms.__file__, SERVICES=launch_kms.SERVICES)
    with (folder / "owner.lock").open("ab") as owner:
        # The server ends when nobody holds this lock any more.
        fcntl.flock(owner, fcntl.LOCK_SH)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(localstack, "launch_localstack", launcher)
            server = localstack.server_in(folder)
        yield server.url


@pytest.fixture
def account(kms_url: str, no_aws_settings: None, monkeypatch: pytest.MonkeyPatch) -> AwsAccount:
    made = AwsAccount(endpoint_url=kms_url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", made.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", made.secret_access_key)
    return made


@pytest.fixture
def kms(account: AwsAccount) -> Iterator[Any]:
    client = account.client("kms")
    yield client
    client.close()


@pytest.fixture
def options(account: AwsAccount) -> KmsOptions:
    return KmsOptions(region=account.region, endpoint_url=account.endpoint_url)


@pytest.fixture
def arn(kms: Any) -> str:
    return str(kms.create_key()["KeyMetadata"]["Arn"])


@pytest.fixture
async def keys(arn: str, options: KmsOptions) -> AsyncIterator[KmsKeys]:
    made = KmsKeys(arn, options=options)
    await made.load()
    yield made
    await made.aclose()


async def test_when_a_message_is_sealed_with_a_data_key_then_another_process_opens_it(
    arn: str, options: KmsOptions, desk: OpenDesk
) -> None:
    """R62, R65: the receiver knows nothing but the name of the KMS key."""
    sender = await desk(Encryption(KmsKeys(arn, options=options)))
    receiver = await desk(Encryption(KmsKeys(arn, options=options)))

    sealed = [await sender.seal() for _ in range(3)]

    assert [await receiver.open(each) for each in sealed] == [MESSAGE] * 3
    key_ids = {parse(each.body).key_id for each in sealed}
    assert len(key_ids) == 1
    assert key_ids.pop().startswith("kms:")


async def test_when_the_key_is_named_by_its_alias_then_it_serves_too(
    kms: Any, arn: str, options: KmsOptions, desk: OpenDesk
) -> None:
    kms.create_alias(AliasName="alias/orders", TargetKeyId=arn)
    open_desk = await desk(Encryption(KmsKeys("alias/orders", options=options)))

    assert await open_desk.open(await open_desk.seal()) == MESSAGE


async def test_when_a_wrapped_key_is_changed_then_kms_refuses_it_for_good(
    keys: KmsKeys,
) -> None:
    """R63, R66."""
    key = await keys.active()
    for forged in (key.id[:-8] + "AAAAAAA=", "kms:AAAA", "kms:" + "A" * 240):
        with pytest.raises(KeyNotFound):
            await keys.find(forged)


async def test_when_a_data_key_was_wrapped_under_another_kms_key_then_it_opens_only_if_named(
    kms: Any, arn: str, options: KmsOptions, desk: OpenDesk
) -> None:
    """R66: whoever else may let us use a key of his gains nothing by it."""
    other = str(kms.create_key()["KeyMetadata"]["Arn"])
    sealed = await (await desk(Encryption(KmsKeys(other, options=options)))).seal()
    strict = await desk(Encryption(KmsKeys(arn, options=options)))
    moving = await desk(Encryption(KmsKeys(arn, also_open=[other], options=options)))

    with pytest.raises(KeyNotFound):
        await strict.open(sealed)
    assert await moving.open(sealed) == MESSAGE


async def test_when_the_encryption_context_differs_then_the_key_is_refused(
    arn: str, options: KmsOptions, desk: OpenDesk
) -> None:
    contexts = [attrs.evolve(options, context={"tenant": name}) for name in ("blue", "green")]
    blue, green = [await desk(Encryption(KmsKeys(arn, options=each))) for each in contexts]
    sealed = await blue.seal()

    with pytest.raises(KeyNotFound):
        await green.open(sealed)
    assert await blue.open(sealed) == MESSAGE


async def test_when_the_kms_key_is_disabled_for_a_while_then_messages_are_retried(
    kms: Any, arn: str, options: KmsOptions, desk: OpenDesk
) -> None:
    sender = await desk(Encryption(KmsKeys(arn, options=options)))
    sealed = await sender.seal()
    receiver = await desk(Encryption(KmsKeys(arn, options=options)))
    kms.disable_key(KeyId=arn)

    with pytest.raises(KeyUnavailable, match="DisabledException"):
        await receiver.open(sealed)
    with pytest.raises(ConfigurationError, match="be enabled"):
        await receiver.seal()

    kms.enable_key(KeyId=arn)
    assert await receiver.open(sealed) == MESSAGE


async def test_when_the_kms_key_does_not_exist_then_senders_are_told_and_receivers_reject(
    keys: KmsKeys, options: KmsOptions
) -> None:
    """R66."""
    wrapped = (await keys.active()).id
    nowhere = KmsKeys("alias/nowhere", options=options)
    await nowhere.load()

    with pytest.raises(ConfigurationError, match=r"alias/nowhere.*NotFoundException"):
        await nowhere.active()
    with pytest.raises(KeyNotFound):
        await nowhere.find(wrapped)
    await nowhere.aclose()


async def test_when_kms_cannot_be_reached_then_messages_are_retried(
    arn: str, options: KmsOptions, keys: KmsKeys, unused_tcp_port: int
) -> None:
    wrapped = (await keys.active()).id
    url = f"http://127.0.0.1:{unused_tcp_port}"
    away = KmsKeys(arn, options=attrs.evolve(options, endpoint_url=url))
    await away.load()

    with pytest.raises(KeyUnavailable, match="KMS: "):
        await away.find(wrapped)
    await away.aclose()


async def test_when_there_are_no_credentials_then_the_app_does_not_open(
    arn: str, options: KmsOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")

    with pytest.raises(ConfigurationError, match="no AWS credentials found"):
        await Encryption(KmsKeys(arn, options=options)).start(Counters(), None)


async def test_when_an_app_moves_from_a_ring_to_kms_then_messages_of_both_open(
    arn: str, options: KmsOptions, desk: OpenDesk
) -> None:
    """R65."""
    ring = KeyRing(Key.generate("2026-01"))
    before = await (await desk(Encryption(ring))).seal()

    both = await desk(Encryption(FallbackKeys(KmsKeys(arn, options=options), ring)))

    assert await both.open(before) == await both.open(await both.seal()) == MESSAGE
