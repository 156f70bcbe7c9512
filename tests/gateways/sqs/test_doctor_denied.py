"""The doctor of SQS queues, where AWS says no. LocalStack denies nobody anything: on paper only."""

from __future__ import annotations

import pytest

from gateways.sqs.doctor import DELETE, EXTEND, FIND, READ, SEND, examine
from pump.errors import ConnectionFailed, CredentialsExpired, Throttled
from pump.findings import HandlerTimes, Level

from .clouds import Cloud
from .examining import a_subscription, deny, fail, found, make_all, paper_aws, problems
from .paper_aws import ACCOUNT, REGION, PaperAws, url_of


@pytest.fixture
def paper() -> PaperAws:
    return paper_aws()


@pytest.fixture
def on_paper(paper: PaperAws) -> Cloud:
    return Cloud(paper)


async def test_when_the_list_of_queues_is_denied_then_sqs_has_answered_all_the_same(
    paper: PaperAws, on_paper: Cloud
) -> None:
    paper.answers["list_queues"] = deny("sqs:ListQueues")

    assert await examine(on_paper, on_paper.urls, [], {}) == []


@pytest.mark.parametrize(
    ("operation", "action", "told"),
    [
        ("delete_message_batch", DELETE, f"{DELETE} on queue 'orders' is denied"),
        ("change_message_visibility_batch", EXTEND, f"{EXTEND} on queue 'orders' is denied"),
        ("send_message_batch", SEND, f"{SEND} on dead-letter queue 'dead' is denied"),
    ],
)
async def test_when_an_action_is_denied_then_it_is_an_error_that_names_it(
    paper: PaperAws, on_paper: Cloud, operation: str, action: str, told: str
) -> None:
    await make_all(on_paper)
    paper.answers[operation] = deny(action)

    found_problems = await problems(on_paper, a_subscription(invalid_queue=None))

    assert found_problems == [(Level.ERROR, told)]


async def test_when_a_key_is_denied_then_the_key_is_named(paper: PaperAws, on_paper: Cloud) -> None:
    await make_all(on_paper)
    paper.answers["send_message_batch"] = deny("kms:GenerateDataKey")

    [(_, detail)] = await problems(on_paper, a_subscription(invalid_queue=None))

    assert detail == "kms:GenerateDataKey on dead-letter queue 'dead' is denied"


async def test_when_attributes_may_not_be_read_then_permissions_are_still_tried(
    paper: PaperAws, on_paper: Cloud
) -> None:
    await make_all(on_paper)
    paper.answers["get_queue_attributes"] = deny(READ)
    paper.answers["delete_message_batch"] = deny(DELETE)

    told = await problems(on_paper, a_subscription(dead_letter_queue=None, invalid_queue=None))

    assert told == [
        (Level.WARNING, f"{READ} on queue 'orders' is denied, so its settings were not examined"),
        (Level.ERROR, f"{DELETE} on queue 'orders' is denied"),
    ]


async def test_when_queues_may_not_be_found_by_name_then_their_urls_still_work(
    paper: PaperAws, on_paper: Cloud
) -> None:
    await make_all(on_paper)
    on_paper.urls.forget("orders")
    paper.answers["get_queue_url"] = deny(FIND)
    subscription = a_subscription(dead_letter_queue=None, invalid_queue=None)

    by_name = await problems(on_paper, subscription)
    by_url = await problems(
        on_paper, a_subscription(url_of("orders"), dead_letter_queue=None, invalid_queue=None)
    )

    assert by_name == [(Level.ERROR, f"{FIND} on queue 'orders' is denied")]
    assert by_url == []


@pytest.mark.parametrize("error", [Throttled("orders"), ConnectionFailed("orders", "reset")])
async def test_when_a_probe_tells_nothing_then_nothing_is_claimed(
    paper: PaperAws, on_paper: Cloud, error: Exception
) -> None:
    await make_all(on_paper)
    paper.answers["delete_message_batch"] = fail(error)

    told = await found(on_paper)

    assert "granted: sqs:ChangeMessageVisibility on 'orders';" in told[-1].detail
    assert f"{DELETE} on 'orders'" in told[-1].detail.partition("not proven")[2]


async def test_when_a_lax_server_takes_an_empty_batch_then_that_proves_nothing(
    paper: PaperAws, on_paper: Cloud
) -> None:
    await make_all(on_paper)
    paper.answers["send_message_batch"] = lambda request: {}

    told = await found(on_paper)

    assert f"{SEND} on 'dead'" in told[-1].detail.partition("not proven")[2]


@pytest.mark.parametrize(
    "error", [ConnectionFailed("sqs", "reset"), CredentialsExpired("sqs", "ExpiredToken")]
)
@pytest.mark.parametrize("operation", ["get_queue_url", "get_queue_attributes"])
async def test_when_sqs_cannot_be_asked_at_all_then_that_is_raised(
    paper: PaperAws, on_paper: Cloud, operation: str, error: Exception
) -> None:
    """R51."""
    await make_all(on_paper)
    on_paper.urls.forget("orders")
    paper.answers[operation] = fail(error)

    with pytest.raises(type(error)):
        await found(on_paper)


async def test_when_a_queues_name_cannot_be_one_then_that_is_told(on_paper: Cloud) -> None:
    """R56."""
    await make_all(on_paper)

    [(level, detail)] = await problems(on_paper, a_subscription(dead_letter_queue="no name!"))

    assert level is Level.ERROR
    assert "'no name!'" in detail


async def test_when_a_queue_is_of_another_region_then_that_is_told(on_paper: Cloud) -> None:
    await make_all(on_paper)
    elsewhere = f"arn:aws:sqs:us-east-1:{ACCOUNT}:dead"

    [finding] = [
        each
        for each in await found(on_paper, a_subscription(dead_letter_queue=elsewhere))
        if each.level is Level.ERROR
    ]

    assert REGION in finding.remedy


async def test_when_a_missing_queue_is_of_another_account_then_it_is_not_ours_to_make(
    on_paper: Cloud,
) -> None:
    await make_all(on_paper)
    elsewhere = f"arn:aws:sqs:{REGION}:999999999999:dead"

    [(level, detail)] = await problems(on_paper, a_subscription(dead_letter_queue=elsewhere))

    assert level is Level.ERROR
    assert "not the app's to make" in detail


async def test_when_handlers_were_observed_then_the_queues_own_timeout_is_compared(
    on_paper: Cloud,
) -> None:
    await make_all(on_paper)
    times = HandlerTimes(count=9, mean_s=1, p50_s=1, p99_s=1, max_s=600, observed_at_s=0)

    told = await found(on_paper, observed={"orders": times})

    assert any("visibility timeout of 'orders' itself" in each.detail for each in told)
