"""How the contract suite meets the S3 gateway on real servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

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
from gateways.s3.store.objects import Reply, Request
from gateways.s3.store.s3_store import S3Store
from pump.clock import Clock
from pump.message import new_id
from pump.testing.contract import ContractClock, Rig, WaitingClock
from pump.testing.travelling_clock import TravellingClock
from tests.brokers.aws_account import AwsAccount
from tests.brokers.localstack import LocalStack
from tests.brokers.moto import Moto, moto_server

SLACK_S = 2.1
"""A date has whole seconds, so a lease may be believed in for one more; and others are looked for
at most once in `poll_s`."""
WINDOW_S = 60.0


@pytest.fixture(scope="session")
def s3_account(localstack: LocalStack) -> AwsAccount:
    """An account for all tests of this process, with the bucket `bucket_of` in it."""
    return _account_with_bucket(localstack.url)


@pytest.fixture(scope="session")
def travelling_moto() -> Iterator[tuple[Moto, AwsAccount]]:
    """A moto whose time the tests of this process skip, and an account there as `s3_account`."""
    with moto_server() as moto:
        yield moto, _account_with_bucket(moto.url)


def _account_with_bucket(url: str) -> AwsAccount:
    account = AwsAccount(endpoint_url=url)
    client = account.client("s3")
    where = {"LocationConstraint": account.region}
    client.create_bucket(Bucket=bucket_of(account), CreateBucketConfiguration=where)
    client.close()
    return account


def bucket_of(account: AwsAccount) -> str:
    """The bucket that the tests of a process share, each below a prefix of its own."""
    return f"contract-{account.account_id}"


def settings_of(account: AwsAccount, transport: TransportKind, layout: Layout) -> S3Settings:
    """A place of the test's own."""
    return S3Settings(
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


async def open_rig(settings: S3Settings, clock: ContractClock, **fields: Any) -> Rig:
    """A rig below these settings' prefix."""
    assert isinstance(clock, Clock)

    async def open_gateway() -> S3Gateway:
        gateway = S3Gateway(settings, clock)
        await gateway.open()
        return gateway

    is_log = settings.layout is Layout.LOG
    return Rig(
        gateway=await open_gateway(),
        clock=clock,
        slack_s=SLACK_S,
        # A lease that is over is dealt with by whoever looks next.
        redrives_on_receive=not is_log,
        ordered_options={"deduplication_window": WINDOW_S} if is_log else {},
        deduplication_window_s=WINDOW_S,
        open_again=open_gateway,
        in_another_process=partial(S3Gateway, settings),
        **fields,
    )


class Requests:
    """How many requests are under way: time is not skipped meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        perform = S3Store.perform

        async def counted(store: S3Store, request: Request) -> Reply:
            self.count += 1
            try:
                return await perform(store, request)
            finally:
                self.count -= 1

        monkeypatch.setattr(S3Store, "perform", counted)

    def are_under_way(self) -> bool:
        """Whether there are any."""
        return self.count > 0


class OnMoto:
    """The rig of a class of tests: sockets are real, and moto's time is skipped with ours."""

    transport: TransportKind
    layout: Layout

    @pytest.fixture
    async def rig(
        self,
        travelling_moto: tuple[Moto, AwsAccount],
        no_aws_settings: None,
        monkeypatch: pytest.MonkeyPatch,
    ) -> AsyncIterator[Rig]:
        moto, account = travelling_moto
        requests = Requests(monkeypatch)
        clock = TravellingClock(moto.travel, ahead_s=moto.ahead_s, is_busy=requests.are_under_way)
        # What is there is found at the first look.
        rig = await open_rig(settings_of(account, self.transport, self.layout), clock, poll_s=0.5)
        yield rig
        await rig.aclose()


class OnLocalStack:
    """The same in real time, for what has no leases to wait for."""

    transport: TransportKind
    layout: Layout

    @pytest.fixture
    async def rig(self, s3_account: AwsAccount, no_aws_settings: None) -> AsyncIterator[Rig]:
        settings = settings_of(s3_account, self.transport, self.layout)
        rig = await open_rig(settings, WaitingClock(), tick_s=3.0, poll_s=2.0, wait_s=2.0)
        yield rig
        await rig.aclose()
