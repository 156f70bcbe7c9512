"""A bucket of a test's own, and what reaches it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import attrs

from gateways._aws.sdk import transport_for
from gateways.s3 import AwsSettings, Credentials, S3Gateway, S3Settings, TransportKind
from gateways.s3.store.objects import ServerTime
from gateways.s3.store.s3_store import Bucket as Place, S3Store
from pump.clock import SYSTEM_CLOCK
from tests.brokers.aws_account import AwsAccount


@attrs.frozen(kw_only=True)
class Bucket:
    """A bucket, the account that owns it, and a plain client to look into it."""

    name: str
    account: AwsAccount
    transport: TransportKind
    stack: AsyncExitStack
    plain: Any

    def settings(self, account: AwsAccount | None = None, **fields: Any) -> S3Settings:
        """Settings that lead to it; `max_attempts` and others of `S3Settings`."""
        return s3_settings(account or self.account, self.name, self.transport, **fields)

    def store(self, account: AwsAccount | None = None, **fields: Any) -> tuple[S3Store, ServerTime]:
        """A store on it, and the time that it feeds; closed with the test."""
        settings = self.settings(account, **fields)
        transport = transport_for(settings.aws)
        self.stack.push_async_callback(transport.aclose)
        time = ServerTime(SYSTEM_CLOCK.now_s)
        place = Place(name=self.name, patience_s=settings.patience_s)
        return S3Store(transport, place, time=time, clock=SYSTEM_CLOCK), time

    def gateway(self, account: AwsAccount | None = None, **fields: Any) -> S3Gateway:
        """A gateway on it, closed with the test."""
        gateway = S3Gateway(self.settings(account, **fields))
        self.stack.push_async_callback(gateway.aclose)
        return gateway

    async def keys(self) -> list[str]:
        """What is in it."""
        reply = await asyncio.to_thread(self.plain.list_objects_v2, Bucket=self.name)
        return [line["Key"] for line in reply.get("Contents", [])]


async def make_bucket(
    account: AwsAccount, transport: TransportKind, stack: AsyncExitStack
) -> Bucket:
    """Make a bucket for the test."""
    plain = await asyncio.to_thread(account.client, "s3")
    stack.callback(plain.close)
    name = f"bucket-{account.account_id}"
    where = {"LocationConstraint": account.region}
    await asyncio.to_thread(plain.create_bucket, Bucket=name, CreateBucketConfiguration=where)
    return Bucket(name=name, account=account, transport=transport, stack=stack, plain=plain)


def s3_settings(
    account: AwsAccount,
    bucket: str,
    transport: TransportKind,
    *,
    max_attempts: int = 4,
    max_connections: int = 128,
    **fields: Any,
) -> S3Settings:
    """Settings for a bucket of an account."""
    return S3Settings(
        bucket=bucket,
        aws=AwsSettings(
            region=account.region,
            endpoint_url=account.endpoint_url,
            credentials=Credentials(
                access_key_id=account.access_key_id, secret_access_key=account.secret_access_key
            ),
            transport=transport,
            max_attempts=max_attempts,
            max_connections=max_connections,
        ),
        **fields,
    )
