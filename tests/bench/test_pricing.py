from typing import Any

import pytest

from pump.bench.report import Calls, RequestPrices, Traffic, cost_of, is_billed

PRICES = RequestPrices(puts_1000=5.0, lists_1000=4.0, gets_1000=1.0, sqs_million=1e6)
"""An SQS request costs a dollar."""


def traffic(**fields: Any) -> Traffic:
    values: dict[str, Any] = {
        "messages": 100,
        "body_bytes": 100,
        "calls": Calls(receives=10, settles=10, extends=5),
        "requests": None,
    }
    return Traffic(**{**values, **fields})


def dollars(gateway: str, of: Traffic) -> float:
    cost = cost_of(gateway, of, PRICES)
    assert cost is not None
    return cost.dollars_a_million / 1e6 * of.messages


def test_requests_to_sqs_that_nobody_counted_are_the_calls_and_sends_of_ten() -> None:
    assert dollars("sqs", traffic()) == pytest.approx(10 + 10 + 10 + 5)
    cost = cost_of("sqs", traffic(), PRICES)
    assert cost is not None
    assert not cost.is_counted


def test_counted_requests_to_sqs_are_taken_as_they_are() -> None:
    counted = traffic(requests={"SendMessageBatch": 10, "ReceiveMessage": 7})

    assert dollars("sqs", counted) == pytest.approx(17)


def test_large_bodies_are_billed_by_every_64_kb_when_sent_and_when_received() -> None:
    counted = traffic(requests={"Any": 0}, body_bytes=64 * 1024)

    # A batch of ten is 640 KB: nine chunks beside the request's own, sent and received.
    assert dollars("sqs", counted) == pytest.approx(2 * 9 * 10)


def test_requests_to_s3_have_their_prices_and_removing_is_free() -> None:
    requests = {"put": 1_000, "list": 2_000, "get": 3_000, "remove": 9_000}

    assert dollars("s3", traffic(requests=requests)) == pytest.approx(5 + 8 + 3)


def test_a_kind_of_request_that_is_not_known_costs_what_the_dearest_does() -> None:
    assert dollars("s3", traffic(requests={"copy": 1_000})) == pytest.approx(5)


@pytest.mark.parametrize(
    ("gateway", "of"),
    [
        ("memory", traffic()),
        ("amqp", traffic(requests={"publish": 3})),
        ("s3", traffic()),
        ("sqs", traffic(messages=0)),
    ],
)
def test_what_is_not_billed_or_not_known_has_no_cost(gateway: str, of: Traffic) -> None:
    assert cost_of(gateway, of, PRICES) is None


def test_prices_that_are_not_given_are_list_prices() -> None:
    given = RequestPrices.given(sqs_million=0.5, puts_1000=None)

    assert (given.sqs_million, given.puts_1000) == (0.5, RequestPrices().puts_1000)
    assert "given" in given.source
    assert RequestPrices.given(sqs_million=None) == RequestPrices()


def test_a_fifo_queue_of_sqs_is_dearer_unless_a_price_is_given() -> None:
    def cost(prices: RequestPrices, is_fifo: bool) -> float:
        found = cost_of("sqs", traffic(requests={"Any": 100}, is_fifo=is_fifo), prices)
        assert found is not None
        return found.dollars_a_million

    assert cost(RequestPrices(), is_fifo=False) == pytest.approx(0.40)
    assert cost(RequestPrices(), is_fifo=True) == pytest.approx(0.50)
    assert cost(RequestPrices.given(sqs_million=0.2), is_fifo=True) == pytest.approx(0.20)


def test_only_providers_that_bill_requests_are_billed() -> None:
    assert [is_billed(each) for each in ("sqs", "s3", "amqp", "memory")] == [
        True,
        True,
        False,
        False,
    ]
