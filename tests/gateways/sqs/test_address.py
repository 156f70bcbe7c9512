"""Queue addresses: every way to name a queue, and the look-up of its URL."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, strategies as st

from gateways._aws.sdk_transport import Polling, Reply, Request
from gateways.sqs.calls import QueueAddress, QueueUrls
from pump.clock import SYSTEM_CLOCK
from pump.errors import ConfigurationError, ConnectionFailed, QueueNotFound

ACCOUNT = "123456789012"


@pytest.mark.parametrize(
    ("queue", "name", "owner", "region"),
    [
        ("orders", "orders", None, None),
        ("Orders_2-x", "Orders_2-x", None, None),
        ("orders.fifo", "orders.fifo", None, None),
        (f"arn:aws:sqs:eu-west-1:{ACCOUNT}:orders", "orders", ACCOUNT, "eu-west-1"),
        (f"arn:aws-cn:sqs:cn-north-1:{ACCOUNT}:orders", "orders", ACCOUNT, "cn-north-1"),
        (f"arn:aws-us-gov:sqs:us-gov-west-1:{ACCOUNT}:o.fifo", "o.fifo", ACCOUNT, "us-gov-west-1"),
        (f"arn:aws-iso-b:sqs:us-isob-east-1:{ACCOUNT}:o", "o", ACCOUNT, "us-isob-east-1"),
        (f"arn:aws-eusc:sqs:eusc-de-east-1:{ACCOUNT}:o", "o", ACCOUNT, "eusc-de-east-1"),
    ],
)
def test_when_named_or_given_as_arn_then_its_parts_are_known(
    queue: str, name: str, owner: str | None, region: str | None
) -> None:
    address = QueueAddress.parse(queue)

    assert (address.given, address.name, address.owner) == (queue, name, owner)
    assert (address.region, address.url) == (region, None)
    assert address.is_fifo == name.endswith(".fifo")


@pytest.mark.parametrize(
    ("start", "region"),
    [
        ("https://sqs.us-east-1.amazonaws.com", "us-east-1"),
        ("https://sqs-fips.us-east-1.amazonaws.com", "us-east-1"),
        ("https://sqs.eu-west-1.api.aws", "eu-west-1"),
        ("https://sqs.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("https://sqs.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
        ("https://sqs.us-iso-east-1.c2s.ic.gov", "us-iso-east-1"),
        ("https://eu-west-1.queue.amazonaws.com", "eu-west-1"),
        ("https://queue.amazonaws.com", "us-east-1"),
        ("https://vpce-0a1b2c-x9y8.sqs.eu-west-1.vpce.amazonaws.com", "eu-west-1"),
        ("http://sqs.us-east-1.localhost.localstack.cloud:4566", "us-east-1"),
        ("http://us-east-1.queue.localhost.localstack.cloud:4566", "us-east-1"),
        ("http://localhost:4566/queue/us-east-1", "us-east-1"),
        ("http://127.0.0.1:4566", None),
        ("http://[::1]:4566", None),
    ],
)
def test_when_given_as_url_then_no_look_up_is_needed(start: str, region: str | None) -> None:
    url = f"{start}/{ACCOUNT}/orders.fifo"

    address = QueueAddress.parse(f"{url}/")

    assert address == QueueAddress(
        given=f"{url}/", name="orders.fifo", owner=ACCOUNT, region=region, url=url
    )


@pytest.mark.parametrize(
    "queue",
    [
        "",
        " ",
        "orders queue",
        "orders.lifo",
        "orders.fifo.fifo",
        ".fifo",
        "órders",
        "orders\n",
        "o" * 81,
        "o" * 76 + ".fifo",
        "arn:aws:sqs:eu-west-1:orders",
        f"arn:aws:sns:eu-west-1:{ACCOUNT}:orders",
        "arn:aws:sqs:eu-west-1:12345:orders",
        f"arn:aws:sqs::{ACCOUNT}:orders",
        f"arn:gcp:sqs:eu-west-1:{ACCOUNT}:orders",
        "ftp://host/123456789012/orders",
        "https:///123456789012/orders",
        "https://host:port/123456789012/orders",
        "https://host",
        "https://host/",
        "https://host/123456789012/orders?Action=SendMessage",
        "https://host/123456789012/or ders",
    ],
)
def test_when_malformed_then_the_error_shows_it_and_the_remedy(queue: str) -> None:
    """R56."""
    with pytest.raises(ConfigurationError) as caught:
        QueueAddress.parse(queue)

    assert caught.value.value == queue
    assert caught.value.remedy


def test_when_a_url_holds_credentials_then_the_error_does_not() -> None:
    """R57."""
    with pytest.raises(ConfigurationError) as caught:
        QueueAddress.parse("https://key:secret@host/123456789012/orders")

    assert "secret" not in str(caught.value)
    assert "key" not in str(caught.value)


@given(st.text())
def test_whatever_the_text_it_is_an_address_or_an_error_of_ours(queue: str) -> None:
    """R56."""
    try:
        address = QueueAddress.parse(queue)
    except ConfigurationError:
        return
    assert address.given == queue
    assert 1 <= len(address.name) <= 80


class Directory:
    """A transport that knows URLs only; `gate` holds its answers back."""

    def __init__(self, **urls: str) -> None:
        self.urls = urls
        self.requests: list[Request] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None

    async def open(self) -> None: ...

    async def aclose(self) -> None: ...

    async def call(
        self,
        service: str,
        operation: str,
        request: Request,
        *,
        target: str = "",
        polling: Polling | None = None,
    ) -> Reply:
        assert (service, operation) == ("sqs", "get_queue_url")
        self.requests.append(request)
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        if request["QueueName"] not in self.urls:
            raise QueueNotFound(target)
        return {"QueueUrl": self.urls[request["QueueName"]]}


async def begin(aws: Directory, urls: QueueUrls, *, count: int) -> list[asyncio.Task[str]]:
    """Let so many ask for one queue while the answer is held back."""
    aws.gate.clear()
    tasks = [asyncio.create_task(urls.url_of("orders")) for _ in range(count)]
    await SYSTEM_CLOCK.sleep(0)
    return tasks


async def test_when_looked_up_then_it_is_remembered() -> None:
    aws = Directory(orders="http://host/1/orders")
    urls = QueueUrls(aws)

    found = [await urls.url_of("orders") for _ in range(3)]

    assert found == ["http://host/1/orders"] * 3
    assert aws.requests == [{"QueueName": "orders"}]


async def test_when_given_as_url_then_nothing_is_asked() -> None:
    aws = Directory()

    found = await QueueUrls(aws).url_of(f"https://host/{ACCOUNT}/orders/")

    assert found == f"https://host/{ACCOUNT}/orders"
    assert aws.requests == []


async def test_when_of_another_account_then_that_one_is_asked() -> None:
    aws = Directory(orders=f"https://sqs.eu-west-1.amazonaws.com/{ACCOUNT}/orders")

    await QueueUrls(aws).url_of(f"arn:aws:sqs:eu-west-1:{ACCOUNT}:orders")

    assert aws.requests == [{"QueueName": "orders", "QueueOwnerAWSAccountId": ACCOUNT}]


async def test_when_an_owner_is_configured_then_names_are_the_owners() -> None:
    aws = Directory(orders="http://host/1/orders")
    urls = QueueUrls(aws, owner="999999999999")

    await urls.url_of("orders")
    await urls.url_of(f"arn:aws:sqs:eu-west-1:{ACCOUNT}:orders")

    assert [request["QueueOwnerAWSAccountId"] for request in aws.requests] == [
        "999999999999",
        ACCOUNT,
    ]


def test_when_the_owner_is_no_account_then_that_is_an_error() -> None:
    """R56."""
    with pytest.raises(ConfigurationError, match="12 digits"):
        QueueUrls(Directory(), owner="me")


async def test_when_the_arn_is_of_another_region_then_no_namesake_is_taken_for_it() -> None:
    aws = Directory(orders=f"https://sqs.us-east-1.amazonaws.com/{ACCOUNT}/orders")

    with pytest.raises(ConfigurationError, match=r"us-east-1.*eu-west-1"):
        await QueueUrls(aws).url_of(f"arn:aws:sqs:eu-west-1:{ACCOUNT}:orders")


async def test_when_many_ask_at_once_then_one_call_is_made() -> None:
    aws = Directory(orders="http://host/1/orders")

    asking = await begin(aws, QueueUrls(aws), count=50)
    aws.gate.set()

    assert set(await asyncio.gather(*asking)) == {"http://host/1/orders"}
    assert len(aws.requests) == 1


async def test_when_the_look_up_fails_then_all_who_wait_hear_it_and_the_next_tries_again() -> None:
    """R51."""
    aws = Directory(orders="http://host/1/orders")
    aws.error = error = ConnectionFailed("sqs", "no route")
    urls = QueueUrls(aws)

    asking = await begin(aws, urls, count=3)
    aws.gate.set()
    failed = await asyncio.gather(*asking, return_exceptions=True)
    aws.error = None

    assert failed == [error] * 3
    assert await urls.url_of("orders") == "http://host/1/orders"
    assert len(aws.requests) == 2


async def test_when_missing_then_it_is_named_as_given() -> None:
    """R2."""
    queue = f"arn:aws:sqs:eu-west-1:{ACCOUNT}:missing"

    with pytest.raises(QueueNotFound) as caught:
        await QueueUrls(Directory()).url_of(queue)

    assert caught.value.queue == queue


async def test_when_who_asked_first_is_cancelled_then_the_others_still_get_their_answer() -> None:
    """Cancellation is never swallowed, nor passed on to strangers."""
    aws = Directory(orders="http://host/1/orders")
    first, second = await begin(aws, QueueUrls(aws), count=2)

    first.cancel()
    await asyncio.wait([first])
    aws.gate.set()

    assert first.cancelled()
    assert await second == "http://host/1/orders"


async def test_when_who_waits_is_cancelled_then_the_look_up_goes_on() -> None:
    aws = Directory(orders="http://host/1/orders")
    first, second = await begin(aws, QueueUrls(aws), count=2)

    second.cancel()
    await asyncio.wait([second])
    aws.gate.set()

    assert second.cancelled()
    assert await first == "http://host/1/orders"
    assert len(aws.requests) == 1


async def test_when_forgotten_then_a_queue_made_later_is_found() -> None:
    aws = Directory(orders="http://host/1/orders")
    urls = QueueUrls(aws)
    urls.remember("orders", "http://host/1/old")
    known = await urls.url_of("orders")

    urls.forget("orders")

    assert known == "http://host/1/old"
    assert await urls.url_of("orders") == "http://host/1/orders"
