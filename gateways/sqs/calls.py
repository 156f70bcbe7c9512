"""Calls: operations on one queue, found by any of its names, and retried when its URL is old."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from math import ceil
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import attrs

from pump.capabilities import Capabilities
from pump.errors import ConfigurationError, QueueNotFound
from pump.message import Delivery

from .._aws.sdk_transport import Polling, Reply, Transport

# Addresses: a queue is named by name, URL or ARN; its URL is what every call wants.

FIFO_SUFFIX = ".fifo"
MAX_NAME_LENGTH = 80

_NAME = re.compile(r"[A-Za-z0-9_-]+(\.fifo)?", re.ASCII)
_ACCOUNT = re.compile(r"[0-9]{12}", re.ASCII)
# us-east-1, us-gov-west-1, eusc-de-east-1; and nothing a VPC endpoint's own label looks like.
_REGION = re.compile(r"[a-z]{2,4}(-[a-z]+){1,2}-[0-9]{1,2}", re.ASCII)
_PARTITION = re.compile(r"aws(-[a-z]+)*", re.ASCII)
_LEGACY_HOSTS = {"queue.amazonaws.com": "us-east-1"}


@attrs.frozen(kw_only=True)
class QueueAddress:
    """Where a queue is, however it was named: a name, a URL, or an ARN."""

    given: str
    """What it was called; errors use this, so that the reader finds it in their own code."""
    name: str
    owner: str | None = None
    """The account that has it; None for the caller's own."""
    region: str | None = None
    """The region that has it, where the address says so."""
    url: str | None = None

    @classmethod
    def parse(cls, queue: str) -> QueueAddress:
        """Understand any of the three; `ConfigurationError` says what is wrong with it."""
        if queue.startswith("arn:"):
            return _from_arn(queue)
        if "://" in queue:
            return _from_url(queue)
        return cls(given=queue, name=_checked_name(queue, given=queue))

    @property
    def is_fifo(self) -> bool:
        """Whether the name is that of a FIFO queue; SQS has no other sign of it."""
        return self.name.endswith(FIFO_SUFFIX)


class QueueUrls:
    """Finds and remembers queue URLs. A look-up costs one call and is done once, also when many
    ask at once; a failed one is not remembered.

    `owner` is the account that has the queues which are given by name alone.
    """

    def __init__(self, transport: Transport, *, owner: str | None = None) -> None:
        self._transport = transport
        self._owner = _checked_owner(owner)
        self._known: dict[str, str] = {}
        self._searches: dict[str, asyncio.Future[str]] = {}

    def owner_of(self, address: QueueAddress) -> str | None:
        """The account to ask for the queue; None for the caller's own."""
        return address.owner or self._owner

    async def url_of(self, queue: str) -> str:
        """The queue's URL; `QueueNotFound` names the queue as it was given."""
        while queue not in self._known:
            search = self._searches.get(queue)
            if search is None:
                return await self._search(queue)
            await asyncio.wait([search])
            # The call that began it was cancelled: another one has to go on.
            if not search.cancelled():
                return search.result()
        return self._known[queue]

    def remember(self, queue: str, url: str) -> None:
        """Take this for the queue's URL, without a look-up."""
        self._known[queue] = url

    def forget(self, queue: str) -> None:
        """Look it up again the next time, so that a queue made later is found."""
        self._known.pop(queue, None)

    async def _search(self, queue: str) -> str:
        search = self._searches[queue] = asyncio.get_running_loop().create_future()
        try:
            url = self._known[queue] = await self._find(QueueAddress.parse(queue))
            search.set_result(url)
        except Exception as error:  # broad: all calls that wait for the answer get the same one
            search.set_exception(error)
            search.exception()
            raise
        finally:
            search.cancel()
            del self._searches[queue]
        return url

    async def _find(self, address: QueueAddress) -> str:
        if address.url is not None:
            return address.url
        request = {"QueueName": address.name}
        if owner := self.owner_of(address):
            request["QueueOwnerAWSAccountId"] = owner
        reply = await self._transport.call("sqs", "get_queue_url", request, target=address.given)
        url = str(reply["QueueUrl"])
        _check_region(address, url)
        return url


def _from_arn(given: str) -> QueueAddress:
    parts = given.split(":")
    if len(parts) != 6 or not _PARTITION.fullmatch(parts[1]) or parts[2] != "sqs":
        raise _malformed(given, "write a queue's ARN as arn:aws:sqs:REGION:ACCOUNT:NAME")
    *_, region, owner, name = parts
    if not _REGION.fullmatch(region) or not _ACCOUNT.fullmatch(owner):
        raise _malformed(given, "a queue's ARN needs a region and an account of 12 digits")
    return QueueAddress(
        given=given, name=_checked_name(name, given=given), owner=owner, region=region
    )


def _from_url(given: str) -> QueueAddress:
    parts = _split(given)
    path = parts.path.strip("/").split("/")
    return QueueAddress(
        given=given,
        name=_checked_name(path[-1], given=given),
        owner=next((part for part in path[:-1] if _ACCOUNT.fullmatch(part)), None),
        region=_region_in(parts),
        url=given.rstrip("/"),
    )


def _split(given: str) -> SplitResult:
    try:
        parts = urlsplit(given)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise _malformed(given, f"this is no URL ({error})") from None
    if parts.username is not None or parts.password is not None:
        # Not `given`: what stands before the @ may be a secret.
        raise _malformed(f"{parts.scheme}://…@{host}", "leave credentials out of the queue's URL")
    if parts.scheme not in ("https", "http") or not host or parts.query or parts.fragment:
        raise _malformed(given, "write a queue's URL as https://HOST/ACCOUNT/NAME")
    return parts


def _region_in(url: SplitResult) -> str | None:
    host = url.hostname or ""
    # LocalStack can put the region into the path: /queue/REGION/ACCOUNT/NAME.
    places = [*host.split("."), *url.path.split("/")[:-1]]
    found = next((place for place in places if _REGION.fullmatch(place)), None)
    return found or _LEGACY_HOSTS.get(host)


def _check_region(address: QueueAddress, url: str) -> None:
    actual = _region_in(urlsplit(url))
    if None in (address.region, actual) or address.region == actual:
        return
    # A queue of the same name may exist in the client's region; it is not the one meant.
    raise _malformed(
        address.given, f"this gateway works in {actual}; give it region={address.region!r}"
    )


def _checked_name(name: str, *, given: str) -> str:
    if len(name) > MAX_NAME_LENGTH or not _NAME.fullmatch(name):
        raise _malformed(
            given,
            f"name a queue with 1 to {MAX_NAME_LENGTH} of the characters A-Z a-z 0-9 _ and -; "
            f"a FIFO queue's name ends in {FIFO_SUFFIX}",
        )
    return name


def _checked_owner(owner: str | None) -> str | None:
    if owner is not None and not _ACCOUNT.fullmatch(owner):
        raise ConfigurationError("owner", owner, "give the 12 digits of an AWS account id")
    return owner


def _malformed(value: str, remedy: str) -> ConfigurationError:
    return ConfigurationError("queue", value, remedy)


# Limits of SQS, each a figure of its documentation, and what follows for the pump.

MAX_BATCH: Final = 10
"""Entries of one batch, and messages of one receive."""
MAX_BYTES: Final = 1_048_576
"""Body and attributes of one message, and of one batch together."""
MAX_ATTRIBUTES: Final = 10
"""Of one message."""
MAX_DELAY_S: Final = 900
MAX_VISIBILITY_S: Final = 43_200
"""Twelve hours, counted from the receive: extensions do not start it anew."""
MAX_LONG_POLL_S: Final = 20

SQS = Capabilities(
    gateway="sqs",
    # Order, groups, sessions and de-duplication are those of queues whose name ends in `.fifo`.
    has_strict_order=True,
    has_groups=True,
    has_deduplication=True,
    has_sessions=True,
    has_session_choice=False,
    has_native_redrive=True,
    has_purge=True,
    is_durable=True,
    is_shared=True,
    spans_machines=True,
    max_delay_s=MAX_DELAY_S,
    max_defer_s=MAX_VISIBILITY_S,
    max_lease_s=MAX_VISIBILITY_S,
    max_body_bytes=MAX_BYTES,
    receive_batch=MAX_BATCH,
    settle_batch=MAX_BATCH,
    # A request costs a hundred times what a message costs: a batch is worth a short wait.
    settle_linger_s=0.005,
    max_settle_calls=8,
    max_pollers=8,
    # Made of FIFO groups: SQS gives out none of a group while one of it is in flight.
    emulated=frozenset({"has_sessions"}),
)


class QueueCalls:
    """Speaks to one queue by the name it was given. Its URL is found at the first call."""

    def __init__(self, transport: Transport, urls: QueueUrls, queue: str) -> None:
        self.queue = queue
        self._transport = transport
        self._urls = urls

    async def call(
        self, operation: str, request: dict[str, Any], *, polling: Polling | None = None
    ) -> Reply:
        """Perform one operation; a queue that is gone is looked up anew the next time."""
        request["QueueUrl"] = await self._urls.url_of(self.queue)
        try:
            return await self._transport.call(
                "sqs", operation, request, target=self.queue, polling=polling
            )
        except QueueNotFound:
            self._urls.forget(self.queue)
            raise


# Requests: what is asked of SQS, spelled once. Pure; the queue's URL is added by the call.

_SYSTEM_ATTRIBUTES = [
    "ApproximateReceiveCount",
    "SentTimestamp",
    "MessageGroupId",
    "MessageDeduplicationId",
    "AWSTraceHeader",
]


def receive_request(*, max_count: int, wait_s: int, lease_s: int) -> dict[str, Any]:
    """Up to `max_count` messages, hidden from others for `lease_s`."""
    return {
        "MaxNumberOfMessages": max_count,
        "WaitTimeSeconds": wait_s,
        "VisibilityTimeout": lease_s,
        "MessageAttributeNames": ["All"],
        "MessageSystemAttributeNames": _SYSTEM_ATTRIBUTES,
    }


def delete_entries(deliveries: Sequence[Delivery]) -> list[dict[str, object]]:
    """Remove these for good; an entry's id is its position."""
    return [
        {"Id": str(position), "ReceiptHandle": delivery.receipt}
        for position, delivery in enumerate(deliveries)
    ]


def hide_entries(deliveries: Sequence[Delivery], seconds: Sequence[int]) -> list[dict[str, object]]:
    """Hide each for so many seconds from now; an entry's id is its position."""
    return [
        {"Id": str(position), "ReceiptHandle": delivery.receipt, "VisibilityTimeout": hide_s}
        for position, (delivery, hide_s) in enumerate(zip(deliveries, seconds, strict=True))
    ]


def whole_seconds(seconds: float, *, most: int = MAX_VISIBILITY_S) -> int:
    """As SQS counts: never shorter than asked for, within its limit."""
    return min(most, max(0, ceil(seconds)))
