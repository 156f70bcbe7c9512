"""How the contract suite meets the S3 gateway on a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import botocore.session
import pytest

from gateways.s3 import (
    AwsSettings,
    Credentials,
    Layout,
    S3Gateway,
    S3QueueSettings,
    S3Settings,
    TransportKind,
)
from pump.ids import new_id
from pump.testing.contract import Rig, WaitingClock
from tests.brokers.aws_account import AwsAccount
from tests.brokers.localstack import LocalStack
from tests.brokers.patience import PATIENCE

TICK_S = 1.5 * PATIENCE
SLACK_S = 2.0 * PATIENCE
"""A date has whole seconds, so a lease may be believed in for one more; and others are looked for
at most once in `poll_s`."""
WINDOW_S = 5.0 * PATIENCE


@pytest.fixture(scope="session")
def s3_account(localstack: LocalStack) -> AwsAccount:
    """An account for all tests of this process, with the bucket `bucket_of` in it."""
    account = AwsAccount(endpoint_url=localstack.url)
    client = account.client("s3")
    where = {"LocationConstraint": account.region}
    client.create_bucket(Bucket=bucket_of(account), CreateBucketConfiguration=where)
    client.close()
    return account


def bucket_of(account: AwsAccount) -> str:
    """The bucket that the tests of a process share, each below a prefix of its own."""
    return f"contract-{account.account_id}"


@pytest.fixture(scope="session")
def _models() -> Any:
    return botocore.session.create_loader()


@pytest.fixture
def read_models_once(monkeypatch: pytest.MonkeyPatch, _models: Any) -> None:
    """Parsing S3's model is most of what opening a gateway takes."""
    monkeypatch.setattr(botocore.session, "create_loader", lambda _=None: _models)


async def open_rig(account: AwsAccount, transport: TransportKind, layout: Layout) -> Rig:
    """A rig in a place of the test's own, in real time."""
    clock = WaitingClock()
    settings = S3Settings(
        bucket=bucket_of(account),
        prefix=new_id(),
        aws=AwsSettings(
            region=account.region,
            endpoint_url=account.endpoint_url,
            credentials=Credentials(
                access_key_id=account.access_key_id, secret_access_key=account.secret_access_key
            ),
            transport=transport,
        ),
        layout=layout,
        queue=S3QueueSettings(poll_s=0.3),
    )

    async def open_gateway() -> S3Gateway:
        gateway = S3Gateway(settings, clock)
        await gateway.open()
        return gateway

    is_log = layout is Layout.LOG
    return Rig(
        gateway=await open_gateway(),
        clock=clock,
        tick_s=TICK_S,
        # What is there is found at the first look. Far less than a tick, the shortest delay.
        poll_s=0.5,
        wait_s=2.0,
        slack_s=SLACK_S,
        # A lease that is over is dealt with by whoever looks next.
        redrives_on_receive=not is_log,
        ordered_options={"deduplication_window": WINDOW_S} if is_log else {},
        deduplication_window_s=WINDOW_S,
        open_again=open_gateway,
        in_another_process=partial(S3Gateway, settings),
    )


class OnS3:
    """The rig of a class of tests."""

    transport: TransportKind
    layout: Layout

    @pytest.fixture
    async def rig(
        self, s3_account: AwsAccount, no_aws_settings: None, read_models_once: None
    ) -> AsyncIterator[Rig]:
        rig = await open_rig(s3_account, self.transport, self.layout)
        yield rig
        await rig.aclose()
