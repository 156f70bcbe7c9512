"""Subscription: its defaults, and every value it refuses by name (R22, R29, R36, R56)."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pump import (
    Backoff,
    MakeChannels,
    OnRoutingFailure,
    OrderingMode,
    Subscription,
    UnacceptableLimit,
    dead_letter,
    hybrid,
    retry,
)
from pump.errors import ConfigurationError
from pump.posting import PostOptions
from pump.subscription import Hybrid, QueueSpec

ZERO = timedelta(0)
WRONG: list[tuple[str, Any]] = [
    ("max_attempts", 0),
    ("max_attempts", "9"),
    ("queue", ""),
    ("queue", "  "),
    ("queue", None),
    ("queue", 5),
    ("name", 5),
    ("request", None),
    ("request", "Order"),
    ("resolver", "a name"),
    ("dead_letter_queue", ""),
    ("dead_letter_queue", " "),
    ("dead_letter_queue", 5),
    ("dead_letter_queue", "orders"),
    ("invalid_queue", ""),
    ("invalid_queue", "orders"),
    ("failure", "retry"),
    ("failure", None),
    ("failure", retry),
    ("ordering", "random"),
    ("ordering", "FIFO"),
    ("ordering", None),
    ("ordering_guarantee", "yes"),
    ("ordering_guarantee", 1),
    ("concurrency", 0),
    ("concurrency", -1),
    ("concurrency", 2.5),
    ("concurrency", True),
    ("concurrency", "10"),
    ("concurrency", None),
    ("prefetch", -1),
    ("prefetch", 1.5),
    ("prefetch", False),
    ("lease", ZERO),
    ("lease", timedelta(seconds=-1)),
    ("lease", 30),
    ("lease", None),
    ("renew", "no"),
    ("renew", None),
    ("max_lease", timedelta(seconds=29)),
    ("max_lease", ZERO),
    ("max_lease", 60),
    ("wait", ZERO),
    ("wait", 20),
    ("unacceptable_limit", 5),
    ("on_routing_failure", "panic"),
    ("on_routing_failure", None),
    ("make_channels", "maybe"),
    ("make_channels", True),
    ("drain_timeout", ZERO),
    ("drain_timeout", 30),
    ("options", None),
    ("options", ["a"]),
]


@pytest.mark.parametrize(("field", "value"), WRONG)
def test_when_a_value_cannot_work_then_the_error_names_field_value_and_remedy(
    field: str, value: Any
) -> None:
    """R56, R36."""
    values: dict[str, Any] = {"queue": "orders", "request": dict, field: value}

    with pytest.raises(ConfigurationError) as caught:
        Subscription(**values)

    error = caught.value
    assert error.field == f"Subscription.{field}"
    assert error.value == value
    assert error.remedy
    assert str(error) == f"Subscription.{field}={value!r}: {error.remedy}"


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "3"])
def test_when_max_receive_count_is_no_count_then_the_error_names_it(value: Any) -> None:
    """R56."""
    with pytest.raises(ConfigurationError, match=r"Subscription\.max_receive_count"):
        Subscription(
            queue="orders", request=dict, dead_letter_queue="dead", max_receive_count=value
        )


@pytest.mark.parametrize(
    ("fields", "remedy"),
    [
        ({"failure": dead_letter()}, "needs a queue to move to"),
        ({"max_receive_count": 3}, "needs a dead_letter_queue"),
        ({"failure": dead_letter("a"), "dead_letter_queue": "b"}, "name the queue once"),
        ({"failure": hybrid(3, "a"), "dead_letter_queue": "b"}, "name the queue once"),
        ({"failure": dead_letter("orders")}, "would come straight back"),
        ({"failure": hybrid(3, "")}, "name a queue"),
    ],
)
def test_when_a_dead_letter_configuration_cannot_work_then_it_is_refused_when_built(
    fields: dict[str, Any], remedy: str
) -> None:
    """R22."""
    with pytest.raises(ConfigurationError, match=remedy) as caught:
        Subscription(queue="orders", request=dict, **fields)

    assert caught.value.field == "Subscription.dead_letter_queue"


def test_when_newest_first_is_asked_to_guarantee_order_then_it_is_refused() -> None:
    """R37."""
    with pytest.raises(ConfigurationError, match="newest-first has no order"):
        Subscription(queue="orders", request=dict, ordering="lifo", ordering_guarantee=True)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("count", 0),
        ("count", 1.5),
        ("count", True),
        ("window", ZERO),
        ("window", 60),
    ],
)
def test_when_an_unacceptable_limit_cannot_work_then_the_error_names_it(
    field: str, value: Any
) -> None:
    """R56."""
    with pytest.raises(ConfigurationError) as caught:
        UnacceptableLimit(**{"count": 3, field: value})

    assert caught.value.field == f"UnacceptableLimit.{field}"


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda: retry(-1), "retry.max_retries"),
        (lambda: retry(1.5), "retry.max_retries"),  # type: ignore[arg-type]
        (lambda: retry("3"), "retry.max_retries"),  # type: ignore[arg-type]
        (lambda: retry(True), "retry.max_retries"),
        (lambda: retry(backoff=5), "retry.backoff"),  # type: ignore[arg-type]
        (lambda: hybrid(-1), "hybrid.max_retries"),
        (lambda: hybrid(None), "hybrid.max_retries"),  # type: ignore[arg-type]
        (lambda: hybrid(backoff=5), "hybrid.backoff"),  # type: ignore[arg-type]
        (lambda: PostOptions(delay=timedelta(seconds=-1)), "PostOptions.delay"),
        (lambda: PostOptions(delay=5), "PostOptions.delay"),  # type: ignore[arg-type]
    ],
)
def test_when_a_policy_cannot_work_then_the_error_names_it(build: Any, field: str) -> None:
    """R56."""
    with pytest.raises(ConfigurationError) as caught:
        build()

    assert caught.value.field == field


def test_when_only_the_necessary_is_said_then_the_defaults_are_the_documented_ones() -> None:
    """R36, T1, T2."""
    subscription = Subscription(queue="orders", request=dict)

    assert subscription.name == "orders"
    assert subscription.ordering is OrderingMode.FIFO
    assert subscription.failure == Hybrid(max_retries=3)
    assert subscription.on_routing_failure is OnRoutingFailure.SPILL
    assert subscription.make_channels is MakeChannels.CREATE
    assert subscription.dead_letter_queue is None
    assert subscription.invalid_queue is None
    assert (subscription.concurrency, subscription.prefetch) == (10, None)
    assert subscription.max_in_flight == subscription.in_hand == 20
    assert subscription.lease == subscription.drain_timeout == timedelta(seconds=30)
    assert subscription.wait == timedelta(seconds=20)
    assert subscription.renew
    assert subscription.max_lease is None
    assert not subscription.ordering_guarantee
    assert subscription.unacceptable_limit is None
    assert subscription.max_receive_count is None
    assert subscription.options == {}


@pytest.mark.parametrize(
    ("field", "text", "choice"),
    [
        ("ordering", "lifo", OrderingMode.LIFO),
        ("on_routing_failure", "keep", OnRoutingFailure.KEEP),
        ("make_channels", "validate", MakeChannels.VALIDATE),
    ],
)
def test_when_a_choice_is_given_as_text_then_it_becomes_the_choice(
    field: str, text: str, choice: object
) -> None:
    """R36."""
    fields: dict[str, Any] = {field: text}
    assert getattr(Subscription(queue="orders", request=dict, **fields), field) is choice


@pytest.mark.parametrize("failure", [dead_letter("dead"), hybrid(3, "dead")])
def test_when_the_strategy_names_the_dead_letter_queue_then_the_subscription_has_it(
    failure: Any,
) -> None:
    """R18, R19."""
    assert Subscription(queue="q", request=dict, failure=failure).dead_letter_queue == "dead"
    both = Subscription(queue="q", request=dict, failure=failure, dead_letter_queue="dead")
    assert both.dead_letter_queue == "dead"


def test_when_a_resolver_is_given_then_no_request_type_is_needed() -> None:
    subscription = Subscription(queue="orders", resolver=lambda message: dict)

    assert subscription.request is None


@given(st.integers(1, 100), st.none() | st.integers(0, 100))
def test_when_concurrency_and_prefetch_are_set_then_in_hand_is_their_sum(
    concurrency: int, prefetch: int | None
) -> None:
    subscription = Subscription(queue="q", request=dict, concurrency=concurrency, prefetch=prefetch)

    expected = concurrency if prefetch is None else prefetch
    assert subscription.max_in_flight == concurrency + expected


def test_when_queues_are_to_be_made_then_the_targets_come_before_the_queue_itself() -> None:
    """R22, R29: a redrive needs its target."""
    subscription = Subscription(
        queue="orders",
        request=dict,
        dead_letter_queue="dead",
        invalid_queue="bad",
        max_receive_count=4,
        ordering="lifo",
        lease=timedelta(seconds=7),
        options={"deduplication_window": 5},
    )

    assert subscription.queue_specs() == (
        QueueSpec(name="dead"),
        QueueSpec(name="bad"),
        QueueSpec(
            name="orders",
            ordering=OrderingMode.LIFO,
            max_receive_count=4,
            dead_letter_queue="dead",
            lease=timedelta(seconds=7),
            options={"deduplication_window": 5},
        ),
    )


def test_when_one_queue_serves_for_both_then_it_is_made_once() -> None:
    subscription = Subscription(
        queue="orders", request=dict, dead_letter_queue="bin", invalid_queue="bin"
    )

    assert [spec.name for spec in subscription.queue_specs()] == ["bin", "orders"]
    assert subscription.queue_specs()[-1].dead_letter_queue is None, "no native redrive asked for"


def test_when_the_options_are_changed_afterwards_then_the_subscription_is_not() -> None:
    options = {"a": 1}
    subscription = Subscription(queue="orders", request=dict, options=options)

    options["a"] = 2

    assert subscription.options == {"a": 1}


def test_when_a_strategy_has_its_own_backoff_then_it_is_kept() -> None:
    backoff = Backoff(initial=timedelta(seconds=9))

    assert retry(backoff=backoff).backoff is backoff
    assert hybrid(backoff=backoff).backoff is backoff
    assert retry().backoff == hybrid().backoff == Backoff()


@pytest.mark.parametrize("field", ["queue", "dead_letter_queue", "invalid_queue"])
def test_when_a_queues_name_has_half_a_surrogate_pair_then_the_field_is_named(field: str) -> None:
    """No gateway could name it: most would fail with an error of Python's."""
    fields = {"queue": "jobs", field: "jobs\ud800"}

    with pytest.raises(ConfigurationError, match=rf"Subscription\.{field}=.*surrogate") as caught:
        Subscription(request=dict, **fields)  # type: ignore[arg-type]

    str(caught.value).encode()


@pytest.mark.parametrize("field", ["name", "dead_letter_queue"])
def test_when_a_queue_is_asked_for_by_half_a_surrogate_pair_then_the_field_is_named(
    field: str,
) -> None:
    fields: dict[str, Any] = {"name": "jobs", field: "jobs\ud800"}

    with pytest.raises(ConfigurationError, match=rf"QueueSpec\.{field}=.*surrogate"):
        QueueSpec(**fields)


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({}, 504),
        ({"failure": hybrid(10)}, 511),
        ({"failure": dead_letter("dead")}, 501),
        ({"failure": retry(None)}, math.inf),
        ({"failure": retry(None), "max_attempts": 7}, 7),
        ({"failure": hybrid(10), "max_attempts": 7}, 11),
        ({"max_attempts": 20}, 20),
        ({"max_attempts": None}, math.inf),
    ],
)
def test_when_attempts_are_limited_then_never_below_what_the_strategy_asks_for(
    fields: dict[str, Any], limit: float
) -> None:
    """R93."""
    assert Subscription(queue="orders", request=dict, **fields).attempt_limit == limit
