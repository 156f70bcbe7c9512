"""One run: a seed, a kind of queue and perhaps a planted bug in; a broken promise or none out."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from functools import partial
from random import Random

import attrs

from gateways.s3.layout import QueueDescription, QueueKeys, Surroundings
from gateways.s3.store.objects import Reply, Request
from pump.message import Message
from tests.gateways.s3.model_store import ModelS3

from .cases import HURRIED_SETTINGS, SETTINGS, Case
from .ledger import Broken, Ledger
from .loop import VirtualLoop, new_loop
from .machines import Machine, Process
from .network import Faults, Network
from .plants import PLANTS, Plant
from .trace import Trace
from .workload import Plan, Worker

START_S = 1_700_000_000.0
QUIET_S = 4.0
"""How long the queue is watched after the faults and after the last late request, at least."""
PATIENCE_S = 120.0
"""How long it may take until everything has been had and handled, at most."""
MAX_CANCELS = 10
MAX_EVENTS = 60_000
"""More than any run needs: a run that goes on has got stuck in a loop."""


@attrs.frozen(kw_only=True)
class Outcome:
    """What came of a run."""

    seed: int
    case: Case
    plant: str
    broken: str | None
    trace: Trace
    is_promise: bool = True
    """Whether what was broken is a promise of the ledger's: not code that raised or never ended."""

    @property
    def command(self) -> str:
        plant = f" --plant {self.plant}" if self.plant != Plant.name else ""
        return (
            f"python -m tests.gateways.s3.simulation {self.seed} --layout {self.case.name}{plant}"
        )

    def describe(self, max_lines: int | None = 80) -> str:
        """The last events, what was broken, and how to see it again."""
        verdict = self.broken or "all promises kept"
        return "\n".join([*self.trace.lines(max_lines), "", verdict, f"replay: {self.command}"])


class Run:
    """A world with a store, machines, and processes that come and go."""

    def __init__(self, seed: int, case: Case, plant: Plant) -> None:
        self.seed, self.case, self.plant = seed, case, plant
        self.rng = rng = Random(f"{seed} {case.name}")
        self.plan, faults = Plan.drawn(rng, is_strict=case.is_strict), Faults.drawn(rng)
        if not case.has_dead_letters:
            self.plan = attrs.evolve(self.plan, max_receive_count=None)
        self.settings = SETTINGS
        if is_hurried(seed):
            self.plan, faults, self.settings = self.plan.hurried, faults.hurried, HURRIED_SETTINGS
        self.loop: VirtualLoop = new_loop(START_S + rng.random())
        self.network = Network(ModelS3(self.loop.time), self.loop, rng, faults)
        self.machines = [Machine(self.loop, rng) for _ in range(self.plan.nodes + 1)]
        self.processes: list[Process] = []
        self.ledger = Ledger(
            self.network.trace,
            is_strict=case.is_strict,
            max_receive_count=self.plan.max_receive_count,
        )
        self.broken: str | None = None
        self._is_promise = True
        self._ids = 0
        self._quiet_since_s = self.loop.now_s
        self._calm_at_s = self.loop.now_s + self.plan.chaos_s

    def finish(self) -> Outcome:
        """The whole of it: chaos, calm, and the reckoning."""
        try:
            for machine in self.machines[:-1]:
                self._boot(machine)
            self._pause_somebody()
            self.loop.call_at(self._calm_at_s, self._calm_down)
            self.loop.run_while(self._is_going_on)
            self._reckon()
            return Outcome(
                seed=self.seed,
                case=self.case,
                plant=self.plant.name,
                broken=self.broken,
                trace=self.network.trace,
                is_promise=self._is_promise,
            )
        finally:
            self._tear_down()

    # Processes.

    def _boot(self, machine: Machine) -> None:
        place = self.machines.index(machine)
        life = sum(process.machine is machine for process in self.processes) + 1
        rng = Random(self.rng.random())
        process = Process(f"n{place}.{life}", self.loop, machine, rng)
        self.plant.furnish(process)
        process.on_death, process.on_end = self._died, self._ended
        self.processes.append(process)
        self.network.trace.note(process.name, "STARTS")
        queue = self.case.build(self._facts(), self._surroundings(process), self.settings)
        worker = Worker(process, queue, self.ledger, self.plan, lambda: self.network.is_calm)
        worker.start()

    def _died(self, process: Process) -> None:
        self.network.trace.note(process.name, "DIES")
        if not self.network.is_calm:
            delay_s = self.rng.choice((0.1, 3.0)) * self.rng.random()
            self.loop.call_later(delay_s, self._reboot, process.machine)

    def _reboot(self, machine: Machine) -> None:
        if not self.network.is_calm:
            self._boot(machine)

    def _facts(self) -> QueueDescription:
        count = self.plan.max_receive_count
        return attrs.evolve(
            self.case.facts,
            max_receive_count=count,
            dead_letter_queue="dead" if count is not None else None,
        )

    def _surroundings(self, process: Process) -> Surroundings:
        return Surroundings(
            keys=QueueKeys("", "q"),
            store=_Door(process, self.network, self.plant),
            time=process.time,
            clock=process.clock,
            send_to=partial(self._dead_letter, process),
            new_id=partial(self.plant.new_id, self._new_id),
        )

    def _new_id(self) -> str:
        self._ids += 1
        return f"id{self._ids:06d}"

    async def _dead_letter(self, process: Process, queue: str, message: Message) -> None:
        await process.clock.sleep(0.01)
        if process.is_alive:
            self.ledger.dead_lettered(int(message.body), process)

    # Chaos and calm.

    def _pause_somebody(self) -> None:
        every_s = self.plan.pauses_every_s
        running = [process for process in self.processes if process.is_alive]
        if running and not self.network.is_calm:
            process = self.rng.choice(running)
            pause_s = self.rng.choice((0.5, 1.0, 2.0)) * self.plan.lease_s * self.rng.random()
            process.paused_until_s = self.loop.now_s + pause_s
            self.network.trace.note(process.name, "PAUSES", f"for {pause_s:.3f} s")
            self.loop.call_later(every_s * self.rng.uniform(0.2, 2), self._pause_somebody)

    def _calm_down(self) -> None:
        """The faults end; a machine that has seen none of it joins, and others may be gone."""
        self.network.is_calm = True
        self.network.trace.note("", "CALM")
        for process in self.processes:
            if process.is_alive and self.rng.random() < 0.5:
                process.die()
        self._boot(self.machines[-1])

    # The reckoning.

    def _is_going_on(self) -> bool:
        if self.loop.errors and self.broken is None:
            error = self.loop.errors[0]
            self._fail(f"a task failed: {error.get('message')} {error.get('exception')!r}")
        if self.network.trace.count > MAX_EVENTS and self.broken is None:
            self._fail("it goes on and on: too many requests")
        calm_s = self.loop.now_s - self._calm_at_s
        if self.broken is not None or calm_s > PATIENCE_S:
            return False
        if self._is_stirring():
            self._quiet_since_s = self.loop.now_s
        return self.loop.now_s - self._quiet_since_s < QUIET_S

    def _is_stirring(self) -> bool:
        """Whether something is still to come."""
        if not self.network.is_calm or self.network.late_count or any(self.ledger.missing()):
            return True
        return any(process.is_paused for process in self.processes if process.is_alive)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or self.broken is not None:
            return
        error = task.exception()
        if isinstance(error, Broken):
            self.broken = str(error)
        elif error is not None:
            self._fail(f"{task.get_name()} failed: {error!r}")

    def _fail(self, why: str) -> None:
        self.broken, self._is_promise = why, False

    def _reckon(self) -> None:
        lost = [story.number for story in self.ledger.missing()]
        if self.broken is None and lost:
            self.broken = (
                f"messages {lost} were sent and not had again, {PATIENCE_S:g} s after the faults"
            )

    def _tear_down(self) -> None:
        """Let everything end: code that cleans up may wait more than once."""
        for process in self.processes:
            process.is_alive = False
        tasks = [task for process in self.processes for task in process.tasks]
        for _ in range(MAX_CANCELS):
            for task in tasks:
                task.cancel()
            self.loop.run_ready()
        for task in tasks:
            if task.done() and not task.cancelled():
                task.exception()
        self.loop.close()


@attrs.frozen(eq=False)
class _Door:
    """The `ObjectStore` of one process, with what is planted into it."""

    process: Process
    network: Network
    plant: Plant

    async def perform(self, request: Request) -> Reply:
        perform = partial(self.network.perform, self.process)
        return await self.plant.perform(perform, request)


def is_hurried(seed: int) -> bool:
    """Whether what usually takes hours takes seconds in this run."""
    return seed % 2 == 1


def run(seed: int, case: Case, plant: str = Plant.name) -> Outcome:
    """Simulate one seed."""
    planted = PLANTS[plant]()
    with case.hurried() if is_hurried(seed) else nullcontext(), planted.planted():
        return Run(seed, case, planted).finish()
