"""`kill -9` in the middle: of an executor, of a Python worker, and of the driver.

One run has all three, because every JVM costs seconds. The bounds follow from what a task may
hold: at most `FLUSH` messages are received and not yet settled, so a killed task repeats at most
those. An executor here has one core, and so one task.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest

from pump.headers import REJECTION_DETAIL, REJECTION_REASON
from tests.brokers.aws_account import AwsAccount
from tests.brokers.pump_local import PumpLocal

from .cluster import Handling, Run, Shop
from .processes import ancestors, command_line, until
from .shop import Order

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

ORDERS = 20_000
FLUSH = 100
EXECUTORS = 2
CLUSTER = ("--master", f"local-cluster[{EXECUTORS},1,1024]", "--flush", str(FLUSH), "--until-empty")
# A quiet machine needs a third of it.
PATIENCE_S = 180.0

REFUSED = {each for each in range(ORDERS) if Order(each).is_refused}
NONSENSE = {each for each in range(ORDERS) if Order(each).is_nonsense}


@pytest.fixture
async def shop(
    tmp_path: Path,
    no_aws_settings: None,
    own_pump_local: Callable[..., PumpLocal],
    monkeypatch: pytest.MonkeyPatch,
) -> Shop:
    """A shop with a server of its own."""
    shop = Shop(tmp_path, AwsAccount(endpoint_url=own_pump_local().url))
    shop.use_credentials(monkeypatch)
    return shop


async def test_when_executor_worker_and_driver_are_killed_then_nothing_is_lost_or_left(
    shop: Shop,
) -> None:
    """R78: 20,000 messages: all handled, all in the ledger, dead letters right, few repeated."""
    ids = await shop.send(ORDERS)

    with Run(shop, *CLUSTER) as first:
        await kill_when(shop, first, 3_000, lambda: executor_at_work(shop))
        await kill_when(shop, first, 7_000, lambda: worker_at_work(shop))
        await kill_when(shop, first, 11_000, lambda: driver_and_jvm(first))
    await until(lambda: not shop.processes(), within_s=60, what="an end of all that it started")
    with Run(shop, *CLUSTER) as second:
        await until(
            lambda: second.process.poll() is not None, within_s=PATIENCE_S, what="an empty queue"
        )
    assert second.process.returncode == 0, second.log

    handled = shop.handled()
    assert {each.number for each in handled} == set(range(ORDERS))
    # An executor's task, a worker's task, and both tasks of a driver.
    assert len(handled) - ORDERS <= (1 + 1 + EXECUTORS) * FLUSH
    assert await shop.in_queue("orders") == []
    check_ledger(shop, ids, handled)
    await check_dead_letters(shop, handled)
    await until(lambda: not shop.processes(), within_s=30, what=f"an end of {shop.processes()}")
    assert list(shop.temporary.iterdir()) == []
    assert not list(shop.ledger.glob("_spark/*"))


def check_ledger(shop: Shop, ids: Sequence[str], handled: Sequence[Handling]) -> None:
    """Every message has its outcome, once for each attempt that came to one, and no other."""
    table = pyarrow.dataset.dataset(shop.ledger, partitioning="hive").to_table()
    numbers = {id: number for number, id in enumerate(ids)}
    # A busy machine may lose a lease; that is no outcome, and the message comes again.
    rows = [row for row in table.to_pylist() if row["status"] != "lease-lost"]
    outcomes = {(numbers[row["message_id"]], row["attempts"]): said(row) for row in rows}

    assert len(outcomes) == len(rows)
    assert outcomes == {key: expected(key[0]) for key in outcomes}
    assert outcomes.keys() <= {(each.number, each.attempt) for each in handled}
    assert {max(each) for each in by_number(handled)} <= outcomes.keys()
    assert list(shop.ledger.glob("_journal/*")) == []


def said(row: dict[str, Any]) -> tuple[str, str | None, str | None]:
    return row["status"], row["reason"], row["destination"]


def expected(number: int) -> tuple[str, str | None, str | None]:
    if number in REFUSED:
        return "dead-lettered", "DeliveryError", "orders-dead"
    if number in NONSENSE:
        return "dead-lettered", "Unacceptable", "orders-invalid"
    return "processed", None, None


def by_number(handled: Sequence[Handling]) -> list[list[tuple[int, int]]]:
    """The attempts at each message."""
    attempts = defaultdict(list)
    for each in handled:
        attempts[each.number].append((each.number, each.attempt))
    return list(attempts.values())


async def check_dead_letters(shop: Shop, handled: Sequence[Handling]) -> None:
    """Each poison message is in its queue, with its reason, and nothing else is there.

    Its copy is sent before the original is removed, so a kill in between makes a second copy of
    it on a queue that does not de-duplicate: never more copies than times it was handled.
    """
    times = Counter(each.number for each in handled)
    for queue, poison, reason, detail in (
        ("orders-dead", REFUSED, "DeliveryError", "out of stock"),
        ("orders-invalid", NONSENSE, "Unacceptable", "no such article"),
    ):
        letters = await shop.in_queue(queue)
        copies = Counter(json.loads(each.body)["number"] for each in letters)
        assert copies.keys() == poison
        assert copies <= times
        reasons = {
            (each.headers[REJECTION_REASON], each.headers[REJECTION_DETAIL]) for each in letters
        }
        assert reasons == {(reason, detail)}


# -- whom to kill -------------------------------------------------------------------------------


async def kill_when(shop: Shop, run: Run, count: int, whom: Callable[[], list[int]]) -> None:
    """Kill them as soon as so many messages were handled, and they are there."""
    found: list[int] = []

    def is_time() -> bool:
        if shop.handled_count() >= count:
            found[:] = whom()
        return bool(found) or run.process.poll() is not None

    await until(is_time, within_s=PATIENCE_S, what=f"whom to kill at {count} handled messages")
    assert run.process.poll() is None, run.log
    for pid in found:
        os.kill(pid, signal.SIGKILL)


def worker_at_work(shop: Shop) -> list[int]:
    """The Python worker that handled the last message."""
    pid = shop.handled()[-1].pid
    return [pid] if "pyspark" in command_line(pid) else []


def executor_at_work(shop: Shop) -> list[int]:
    """The JVM that this worker works for."""
    return [
        pid
        for worker in worker_at_work(shop)
        for pid in ancestors(worker)
        if "CoarseGrainedExecutorBackend" in command_line(pid)
    ]


def driver_and_jvm(run: Run) -> list[int]:
    """The driver is two processes; neither gets a chance to end the other."""
    return [run.process.pid, *(pid for pid in run.children() if "java" in command_line(pid))]
