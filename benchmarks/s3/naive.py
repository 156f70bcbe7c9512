"""The naive design: one object a message and one a lease, with raw aioboto3.

A message is a PUT. A consumer takes a key from the latest listing, PUTs a lease if there is none,
GETs the message, handles it, and DELETEs message and lease. Nothing is fenced and no lease is ever
renewed or taken over: it is what one writes in an afternoon. To its favour, all consumers of a
process share one listing, and start where no other process does.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aioboto3
from aiobotocore.config import AioConfig
from botocore.exceptions import ClientError

from .rig import BUCKET, REGION

MESSAGES, LEASES = "messages/", "leases/"
_PAUSE_S = 0.1


class NaiveQueue:
    """The queue, seen by one process."""

    def __init__(self, client: Any, *, share: int = 0, shares: int = 1) -> None:
        self._client = client
        self._share, self._shares = share, shares
        self._keys: list[str] = []
        self._taken: set[str] = set()
        self._listing = asyncio.Lock()
        self.done_count = 0
        self.is_stopped = False

    async def send(self, numbers: Sequence[int]) -> None:
        """All of them at once, one PUT each."""
        await asyncio.gather(
            *(
                self._client.put_object(
                    Bucket=BUCKET,
                    Key=f"{MESSAGES}{number:012d}",
                    Body=json.dumps({"number": number}),
                )
                for number in numbers
            )
        )

    async def consume(self) -> None:
        """One consumer, until they are stopped."""
        while (key := await self._next_key()) is not None:
            if not await self._claim(key):
                continue
            if (body := await self._read(key)) is not None:
                json.loads(body)
                await self._client.delete_object(Bucket=BUCKET, Key=key)
            await self._client.delete_object(Bucket=BUCKET, Key=self._lease(key))
            self.done_count += body is not None

    async def _next_key(self) -> str | None:
        async with self._listing:
            while not self._keys:
                if self.is_stopped:
                    return None
                reply = await self._client.list_objects_v2(Bucket=BUCKET, Prefix=MESSAGES)
                found = [each["Key"] for each in reply.get("Contents", ())]
                self._keys = [key for key in found if key not in self._taken]
                # Each process begins elsewhere, or all would claim the same.
                start = len(self._keys) * self._share // self._shares
                self._keys = (self._keys[start:] + self._keys[:start])[::-1]
                if not self._keys:
                    await asyncio.sleep(_PAUSE_S)
            key = self._keys.pop()
            self._taken.add(key)
            return key

    async def _read(self, key: str) -> bytes | None:
        """None when another process was done with it between our listing and our lease."""
        try:
            reply = await self._client.get_object(Bucket=BUCKET, Key=key)
            body: bytes = await reply["Body"].read()
            return body
        except ClientError as error:
            if error.response["Error"]["Code"] == "NoSuchKey":
                return None
            raise

    async def _claim(self, key: str) -> bool:
        try:
            await self._client.put_object(
                Bucket=BUCKET, Key=self._lease(key), Body=b"mine", IfNoneMatch="*"
            )
        except ClientError as error:
            if error.response["Error"]["Code"] == "PreconditionFailed":
                return False
            raise
        return True

    def _lease(self, key: str) -> str:
        return LEASES + key.removeprefix(MESSAGES)


@asynccontextmanager
async def naive_client(endpoint: str, connections: int) -> AsyncIterator[Any]:
    """A client with as many connections as may be used at once."""
    config = AioConfig(max_pool_connections=connections)
    session = aioboto3.Session(region_name=REGION)
    async with session.client("s3", endpoint_url=endpoint, config=config) as client:
        # The first call of an SDK costs more than the others; Pumphouse has probed by then.
        await client.list_objects_v2(Bucket=BUCKET, Prefix="warm-up/")
        yield client
