"""Rig: an app on a memory broker that claims to span machines, and tasks that run right here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from pump import App, Command, Subscription
from pump.clock import SYSTEM_CLOCK
from pump.spark.run.driver import Silent
from pump.spark.run.plan import AppByName, SparkRunOptions, TaskPlan
from pump.spark.run.running import Stops, Work, running_in
from pump.spark.run.summary import SparkRun, TaskSummary
from pump.spark.run.task import TaskRun
from pump.stores.ledger.parquet_ledger import ParquetLedger
from tests.core.faulty_gateway import FaultyGateway
from tests.ledger.support import parquet_rows

QUEUE = "orders"
DEAD = "orders-dead"


class Order(Command):
    """What the tests send."""

    n: int


class Rig:
    """One app for everybody: the driver, and a task at a time."""

    def __init__(
        self, folder: Path, gateway: FaultyGateway | None = None, **subscription: Any
    ) -> None:
        self.folder = folder / "ledger"
        self.gateway = gateway or FaultyGateway(SYSTEM_CLOCK, is_shared=True, spans_machines=True)
        self.handled: list[int] = []
        self.behaviour: Callable[[Order], Awaitable[None]] | None = None
        self.app = App(self.gateway, spill=folder / "spill.db")
        self.app.register(Order, self._handle)
        self.subscription = self.app.subscribe(
            Subscription(
                queue=QUEUE, **{"request": Order, "dead_letter_queue": DEAD, **subscription}
            )
        )

    async def _handle(self, order: Order) -> None:
        self.handled.append(order.n)
        if self.behaviour is not None:
            await self.behaviour(order)

    async def send(self, count: int) -> list[str]:
        """Send so many orders, numbered, and return their ids."""
        async with self.app:
            return list(await self.app.post_all([Order(n=n) for n in range(count)]))

    async def depth(self, queue: str = QUEUE) -> int:
        """What is in a queue, received or not."""
        stats = await self.gateway._inner.admin().stats(queue)
        return stats.visible + stats.in_flight + stats.delayed

    def rows(self) -> list[tuple[str, str, int]]:
        """The ledger: message, status and attempt."""
        return [(row.message_id, row.status, row.attempts) for row in parquet_rows(self.folder)]

    def plan(self, run_folder: Path, **fields: Any) -> TaskPlan:
        """What a task is told."""
        run_folder.mkdir(parents=True, exist_ok=True)
        given = {
            "app_reference": AppByName(target="none:needed"),
            "subscriptions": tuple(each.name for each in self.app.subscriptions),
            "ledger": ParquetLedger(self.folder),
            "run_folder": run_folder,
            "messages": 1_000_000,
            "time_s": 60.0,
            "flush": 200,
            **fields,
        }
        return TaskPlan(**given)

    async def task(self, **fields: Any) -> TaskSummary:
        """Run one task to its end."""
        return await TaskRun(self.plan(self.folder / "_spark" / "run", **fields), self.app, 0).run()

    async def run(self, cluster: Here | None = None, **options: Any) -> SparkRun:
        """Run slices to the end of the run."""
        stops = options.pop("stops", None) or Stops()
        chosen = SparkRunOptions(ledger=self.folder, **options)
        app_reference = AppByName(target="none:needed")
        work = await asyncio.to_thread(Work.of, self.app, chosen, app_reference)
        running = running_in(work.ledger)
        folder = await asyncio.to_thread(running.__enter__)
        try:
            return await work.run(cluster or Here(self), folder, stops, Silent())
        finally:
            await asyncio.to_thread(running.__exit__, None, None, None)


class Here:
    """A cluster in this very process: its tasks run one after the other, on the rig's app."""

    def __init__(self, rig: Rig, slots: int = 1) -> None:
        self.rig = rig
        self._slots = slots
        self.is_one_machine = True
        self.asked: list[int] = []
        self.plans: list[TaskPlan] = []
        self.killed_count = 0

    async def slots(self) -> int:
        return self._slots

    async def run(self, plan: TaskPlan, tasks: int) -> list[TaskSummary]:
        self.asked.append(tasks)
        self.plans.append(plan)
        try:
            return [await TaskRun(plan, self.rig.app, number).run() for number in range(tasks)]
        except asyncio.CancelledError:
            self.killed_count += 1
            raise
