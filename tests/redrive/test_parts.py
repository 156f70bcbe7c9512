"""The pure parts: identity, columns, the end, and the pace."""

from __future__ import annotations

import asyncio
import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import pytest
from msgspec.structs import replace

from pump.errors import ConfigurationError
from pump.headers import ATTEMPTS, REJECTION_TIMESTAMP
from pump.message import Message
from pump.queue_browser import Seen
from pump.redrive.folder import Plan, RedriveCounts, Silence, is_over, lease_for, place_of
from pump.redrive.moving import DeadLetterFate, Pace, batches, fate_of
from pump.redrive.rows import COLUMNS, NAMES, VISIBLE, entry_of, key_of, redriven, row_of
from pump.testing.builders import a_delivery
from pump.testing.virtual_clock import VirtualClock

from .rig import a_dead_letter, a_plan

LETTER = a_dead_letter(1)


# -- identity ------------------------------------------------------------------------------------


def test_when_a_dead_letter_is_seen_again_then_its_key_is_the_same() -> None:
    """R78."""
    assert key_of(LETTER) == key_of(pickle.loads(pickle.dumps(LETTER)))
    assert key_of(LETTER) == key_of(replace(LETTER, deduplication_id="another"))


@pytest.mark.parametrize(
    "other",
    [
        replace(LETTER, id="m-2"),
        replace(LETTER, body=b"other"),
        replace(LETTER, headers={**LETTER.headers, REJECTION_TIMESTAMP: "later"}),
    ],
    ids=["id", "body", "time of rejection"],
)
def test_when_it_is_another_dead_letter_then_its_key_is_another(other: Message) -> None:
    """R78."""
    assert key_of(other) != key_of(LETTER)


def test_when_a_message_is_redriven_then_only_its_deduplication_id_is_new() -> None:
    """R78: group, headers and everything else travel on."""
    letter = replace(LETTER, group="g", deduplication_id="of the rejection", reply_to="r")
    delivery = a_delivery(letter)

    sent = redriven(delivery, "orders")

    assert replace(sent, deduplication_id="of the rejection") == letter
    assert sent.deduplication_id == redriven(a_delivery(letter), "orders").deduplication_id
    assert sent.deduplication_id != redriven(delivery, "elsewhere").deduplication_id


def test_when_the_broker_left_no_time_of_rejection_then_its_own_id_tells_two_apart() -> None:
    """R78: else the second redrive of a message would be taken for the first one and dropped."""
    undated = replace(LETTER, headers={})
    one, two = (replace(a_delivery(undated), broker_id=id) for id in ("a", "b"))

    assert redriven(one, "q").deduplication_id != redriven(two, "q").deduplication_id
    assert entry_of(one) != entry_of(two)


# -- columns -------------------------------------------------------------------------------------


def test_when_a_dead_letter_becomes_a_row_then_its_headers_are_columns() -> None:
    """R78."""
    row = row_of(Seen(message=LETTER, broker_id=7))

    assert tuple(row) == tuple(each.name for each in COLUMNS)
    assert row["entry"] == f"{row['key']}:7"
    assert (row["type"], row["reason"], row["detail"]) == ("Order", "DeliveryError", "no")
    assert (row["attempts"], row["original_queue"]) == (3, "orders")
    assert row["rejected_at"] == datetime(2026, 11, 1, 0, 0, 1, tzinfo=UTC)
    assert (row["body"], row["body_bytes"]) == ('{"n": 1}', 8)


@pytest.mark.parametrize("number", ["", "x", "-1", "²", "9" * 30])
def test_when_a_foreign_header_is_no_number_then_the_column_is_null(number: str) -> None:
    """R78: a stranger's dead letters must not stop the snapshot."""
    letter = replace(LETTER, headers={ATTEMPTS: number, REJECTION_TIMESTAMP: number})

    row = row_of(Seen(message=letter))

    assert (row["attempts"], row["rejected_at"]) == (None, None)


def test_when_a_body_is_not_text_then_the_column_is_null_and_its_length_is_known() -> None:
    """R78."""
    row = row_of(Seen(message=Message(body=b"\xff\xfe", id="\ud800", headers={"a": "\udfff"})))

    assert (row["body"], row["body_bytes"], row["id"]) == (None, 2, "\\ud800")
    assert row["headers"] == [("a", "\\udfff")]


def test_when_columns_are_named_then_the_help_of_both_commands_names_them_all() -> None:
    """R78."""
    from pump.cli.redrive import redrive
    from pump.cli.spark import redrive as spark_redrive

    assert NAMES.count(",") == len(VISIBLE) - 1
    for command in (redrive, spark_redrive):
        assert command.help is not None
        assert all(each.name in command.help for each in VISIBLE)


def test_when_the_documentation_lists_the_columns_then_it_is_up_to_date() -> None:
    """R78."""
    page = Path(__file__).resolve().parents[2] / "docs" / "redrive.md"
    rows = [f"| `{each.name}` | {each.kind} | {each.meaning} |" for each in VISIBLE]

    assert "\n".join(rows) in page.read_text(encoding="utf-8")


# -- decisions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("is_sent", "is_selected", "fate"),
    [
        (True, True, DeadLetterFate.REMOVE),
        (True, False, DeadLetterFate.REMOVE),
        (False, True, DeadLetterFate.SEND),
        (False, False, DeadLetterFate.HOLD),
    ],
)
def test_when_a_dead_letter_comes_then_its_fate_is_known(
    is_sent: bool, is_selected: bool, fate: DeadLetterFate
) -> None:
    """R78."""
    assert fate_of(is_sent=is_sent, is_selected=is_selected) is fate


@pytest.mark.parametrize(
    ("left", "silence", "is_resumed", "expected"),
    [
        (0, Silence(), False, True),
        (1, Silence(look_count=1), False, False),
        (1, Silence(look_count=2, since_s=2, held_elsewhere=0), False, True),
        (1, Silence(look_count=2, since_s=2, held_elsewhere=0), True, False),
        (1, Silence(look_count=9, since_s=10, held_elsewhere=0), True, True),
        (1, Silence(look_count=9, since_s=34, held_elsewhere=1), False, False),
        (1, Silence(look_count=9, since_s=34, held_elsewhere=None), False, False),
        (1, Silence(look_count=9, since_s=35, held_elsewhere=1), True, True),
    ],
)
def test_when_nothing_comes_any_more_then_the_table_says_whether_it_is_over(
    left: int, silence: Silence, is_resumed: bool, expected: bool
) -> None:
    """R78: the messages of a process that died come when its leases end."""
    assert is_over(left, silence, lease_s=30, is_resumed=is_resumed) is expected


def test_when_many_are_held_then_leases_are_longer_within_bounds() -> None:
    """R78: two extensions a lease for each of 100,000 messages must be possible."""
    assert [lease_for(count) for count in (0, 100_000, 10_000_000)] == [30, 1_000, 3_600]


def test_when_batches_are_made_then_no_id_is_in_one_twice() -> None:
    """R78: a broker's answer names messages by their id."""
    one, again, two, three = (a_delivery(a_dead_letter(n)) for n in (1, 1, 2, 3))

    assert batches([one, again, two, three], 2) == [[one], [again, two], [three]]
    assert batches([], 2) == []


def test_when_counts_are_added_then_the_first_refusal_is_kept() -> None:
    """R78."""
    total = RedriveCounts(sent=1, refused=1, first_refusal="a") + RedriveCounts(
        sent=2, first_refusal="b"
    )

    assert total == RedriveCounts(sent=3, refused=1, first_refusal="a")


# -- the plan ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({"target": "orders-dead"}, "name another queue"),
        ({"target": " "}, "name the queue to send to"),
        ({"queue": ""}, "name the dead-letter queue"),
        ({"where": " "}, "TRUE for all"),
        ({"limit": 0}, "use 1 or more"),
        ({"where": "type = '\udcff'"}, "in UTF-8"),
        ({"target": "\udcff"}, "in UTF-8"),
    ],
)
def test_when_a_plan_cannot_work_then_it_says_why(changes: dict[str, Any], remedy: str) -> None:
    """R78."""
    with pytest.raises(ConfigurationError, match=remedy):
        attrs.evolve(a_plan(), **changes)


def test_when_a_gateway_is_named_then_its_place_has_no_secrets_and_no_tuning() -> None:
    """R78: the run must be found again when only the number of connections was changed."""
    url = "sqs://u:secret@eu-west-1?transport=boto3&endpoint=http://x:1&max_connections=9"

    place = place_of(url)

    assert place == "sqs://eu-west-1?endpoint=http%3A%2F%2Fx%3A1"
    assert place_of("local://") == "local://"
    assert Plan(gateway=place, queue="a", target="b", where="c").source_id != a_plan().source_id


# -- the pace ------------------------------------------------------------------------------------


async def test_when_there_is_a_rate_then_no_second_has_more_than_its_share(
    clock: VirtualClock,
) -> None:
    """R78: 50 a second, in batches of 10, is a batch every fifth of a second."""
    pace, moments = Pace(50, clock), []
    started_s = clock.now_s()

    async def send() -> None:
        for _ in range(10):
            assert await pace.wait_for(10, asyncio.Event())
            moments.append(round(clock.now_s() - started_s, 6))

    sending = asyncio.create_task(send())
    await clock.advance(10)
    await sending

    assert moments == pytest.approx([0.2 * n for n in range(1, 11)])


async def test_when_nothing_was_sent_for_long_then_no_more_than_a_second_was_saved(
    clock: VirtualClock,
) -> None:
    """R78."""
    pace, never = Pace(5, clock), asyncio.Event()
    await clock.advance(60)
    assert await pace.wait_for(5, never)

    waiting = asyncio.create_task(pace.wait_for(5, never))
    await clock.advance(0.9)
    assert not waiting.done()
    await clock.advance(0.2)

    assert await waiting


@pytest.mark.parametrize(("rate", "most"), [(None, 100), (1_000, 100), (10, 10), (0.1, 1)])
async def test_when_there_is_a_rate_then_batches_are_what_a_second_has(
    clock: VirtualClock, rate: float | None, most: int
) -> None:
    """R78."""
    assert Pace(rate, clock).most_at_once(100) == most


async def test_when_it_is_stopped_then_nobody_waits_for_the_rate(clock: VirtualClock) -> None:
    """R78: Ctrl-C at a message a minute."""
    stopping = asyncio.Event()
    waiting = asyncio.create_task(Pace(1 / 60, clock).wait_for(1, stopping))
    await clock.advance(1)

    stopping.set()
    await clock.advance(0)

    assert waiting.done()
    assert not await waiting
    assert not await Pace(None, clock).wait_for(1, stopping)
