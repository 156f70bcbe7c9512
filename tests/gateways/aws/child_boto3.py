"""A program that ends while a call of its own is unanswered; says "bye" as its last word."""

from __future__ import annotations

import asyncio
import contextlib
import sys

from gateways._aws.sdk import transport_for
from gateways._aws.sdk_transport import Polling
from gateways._aws.settings import AwsSettings, Credentials, TransportKind
from pump.errors import ConnectionFailed


async def main(endpoint_url: str) -> None:
    """Poll, close, and end."""
    settings = AwsSettings(
        region="eu-west-1",
        endpoint_url=endpoint_url,
        transport=TransportKind.BOTO3,
        credentials=Credentials(access_key_id="key", secret_access_key="secret"),
    )
    transport = transport_for(settings)
    request = {"QueueUrl": endpoint_url}
    poll = asyncio.create_task(
        transport.call("sqs", "receive_message", request, polling=Polling(50, 0))
    )
    # The parent says when the poll has arrived.
    await asyncio.to_thread(sys.stdin.readline)
    await transport.aclose()
    with contextlib.suppress(ConnectionFailed):
        await poll
    print("bye", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
