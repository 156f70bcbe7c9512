"""Probes and control of several processes, as those find them who ask the supervisor."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import pytest

from pump.http.wire import Answer, Refused, Request
from pump.performer import DesiredState
from pump.processes.control import Worker, WorkersControl, WorkersProbes
from pump.processes.ipc import UNASKED, Order
from pump.processes.merged_reports import Counts, Families, ProcessReport, ProcessState
from pump.testing.virtual_clock import VirtualClock

pytestmark = pytest.mark.usefixtures("quiet")

SUBSCRIPTION = {
    "name": "orders",
    "queue": "orders",
    "state": "paused",
    "asked": "pause",
    "concurrency": 1,
    "in_hand": 0,
    "running": 0,
    "last_poll_age_s": None,
    "unanswered_s": 0.0,
    "failed_polls": 0,
    "last_error": None,
    "counts": {},
}
WELL = {"live": True, "ready": True, "reasons": [], "subscriptions": [SUBSCRIPTION]}
PAUSE = Request(
    method="POST",
    path=("subscriptions", "orders", "pause"),
    headers={"host": "localhost", "content-type": "application/json"},
)


class FakeWorker:
    """Answers always the same; None for nothing."""

    def __init__(self, answer: Answer | None, **fields: Any) -> None:
        self._answer = answer
        self._report = ProcessReport(**{"number": 1, "state": ProcessState.RUNNING, **fields})

    def report(self) -> ProcessReport:
        return self._report

    async def ask(self, request: Request) -> Answer | None:
        return self._answer


class FakeWorkers:
    """A `WorkerGroup` of workers that do not change."""

    is_draining = False

    def __init__(self, *workers: FakeWorker) -> None:
        self._members = workers
        self.orders: dict[str, Order] = {}

    def counted(self) -> Counts:
        return {}

    def measured(self) -> Families:
        return {}

    def workers(self) -> Sequence[Worker]:
        return self._members

    def drain(self) -> None:
        self.is_draining = True

    def order(self, subscription: str, order: Order | None = None) -> Order:
        if order is not None:
            self.orders[subscription] = order
        return self.orders.get(subscription, UNASKED)


def probes_of(workers: FakeWorkers) -> WorkersProbes:
    return WorkersProbes(workers, None, VirtualClock(), version="1")


def control_of(workers: FakeWorkers) -> WorkersControl:
    return WorkersControl(workers, probes_of(workers))


@pytest.mark.parametrize(
    ("found", "failing_s", "is_alive"),
    [
        (WELL, None, True),
        ({**WELL, "ready": False, "reasons": ["orders: the broker is away"]}, None, True),
        ({**WELL, "live": False}, None, False),
        (WELL, 299.0, True),
        (WELL, 301.0, False),
        (None, None, False),
    ],
    ids=["well", "not ready", "ill", "died before", "dies on and on", "silent"],
)
async def test_whether_it_is_alive_is_said_alike_by_health_and_by_livez(
    found: dict[str, Any] | None, failing_s: float | None, is_alive: bool
) -> None:
    said = None if found is None else Answer.of(found)
    lives = None if found is None else Answer.of({"reasons": [] if found["live"] else ["stuck"]})
    health = FakeWorkers(FakeWorker(said, failing_s=failing_s))
    livez = FakeWorkers(FakeWorker(lives, failing_s=failing_s))

    document = await probes_of(health).document()
    verdict = await probes_of(livez).answer(Request(method="GET", path=("livez",)))

    assert document["live"] is is_alive
    assert (verdict.status == HTTPStatus.OK) is is_alive


async def test_when_nobody_answers_then_that_is_said_and_what_was_asked_is_kept() -> None:
    workers = FakeWorkers(FakeWorker(None, state=ProcessState.STARTING))

    with pytest.raises(Refused, match="no process answers yet") as refused:
        await control_of(workers).answer(PAUSE)

    assert refused.value.status == HTTPStatus.SERVICE_UNAVAILABLE
    assert workers.order("orders").asked is DesiredState.PAUSE


async def test_when_all_refuse_then_nothing_is_kept_for_those_to_come() -> None:
    no = Answer.of({"error": "there is no such subscription"}, HTTPStatus.NOT_FOUND)
    workers = FakeWorkers(FakeWorker(no), FakeWorker(no, number=2))

    with pytest.raises(Refused, match="process 1: there is no such subscription"):
        await control_of(workers).answer(PAUSE)

    assert workers.order("orders") == UNASKED


async def test_when_one_refuses_then_it_is_named_and_the_others_have_done_it() -> None:
    no = Answer.of({"error": "it has stopped"}, HTTPStatus.CONFLICT)
    workers = FakeWorkers(FakeWorker(Answer.of(SUBSCRIPTION)), FakeWorker(no, number=2))

    with pytest.raises(Refused, match="process 2: it has stopped"):
        await control_of(workers).answer(PAUSE)

    assert workers.order("orders").asked is DesiredState.PAUSE


async def test_one_that_leaves_is_not_asked_to_change_anything() -> None:
    no = Answer.of({"error": "the whole app drains"}, HTTPStatus.CONFLICT)
    workers = FakeWorkers(
        FakeWorker(Answer.of(SUBSCRIPTION)), FakeWorker(no, state=ProcessState.LEAVING)
    )

    answer = await control_of(workers).answer(PAUSE)

    assert (answer.status, answer.document()["state"]) == (HTTPStatus.OK, "paused")
