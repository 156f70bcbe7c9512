"""What a watched pump tells, on any gateway: `Watched` is run against each of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from pump import App, Backoff, Command, InvalidMessage, Subscription, hybrid
from pump.clock import SYSTEM_CLOCK
from pump.events import Event, OutcomeEvent
from pump.observability import vocabulary
from pump.observability.metrics import Metrics
from pump.ports import Gateway
from pump.stores.ledger import SqliteLedger
from pump.stores.spill import MemorySpill
from tests.ledger.support import sqlite_rows

MakeGateway = Callable[[], Gateway]
SECRET = "4929-1234-5678-9012"
_AT_ONCE = Backoff(initial=timedelta(milliseconds=1), maximum=timedelta(milliseconds=1))
_PATIENCE_S = 20.0
_KINDS = ("good", "shaky", "bad", "odd")


class Deliver(Command):
    """A parcel; `kind` says what becomes of it, and the address is nobody's business."""

    kind: str
    address: str = SECRET


class Depot:
    """An app that is watched in every way, and one parcel of each kind."""

    def __init__(self, gateway: Gateway, folder: Path) -> None:
        self.metrics = Metrics()
        self.events: list[Event] = []
        self.ledger = folder / "ledger.db"
        self._tried: set[str] = set()
        self.app = App(
            gateway,
            spill=MemorySpill(),
            telemetry=self.metrics,
            ledger=SqliteLedger(self.ledger),
            observers=[self.events.append],
        )
        self.app.register(Deliver, self._deliver)
        self.app.subscribe(
            Subscription(
                queue="parcels",
                request=Deliver,
                dead_letter_queue="parcels-dead",
                invalid_queue="parcels-invalid",
                failure=hybrid(max_retries=1, backoff=_AT_ONCE),
                wait=timedelta(seconds=1),
            )
        )

    @property
    def outcomes(self) -> list[OutcomeEvent]:
        return [event for event in self.events if isinstance(event, OutcomeEvent)]

    async def run(self) -> None:
        """Post one of each kind, and pump until each has come to its end."""
        async with self.app:
            for kind in _KINDS:
                await self.app.post(Deliver(kind), correlation_id=f"c-{kind}")
            async with self.app.pumping(), asyncio.timeout(_PATIENCE_S):
                while len(self._ended) < len(_KINDS):
                    await SYSTEM_CLOCK.sleep(0.01)

    @property
    def _ended(self) -> list[OutcomeEvent]:
        return [each for each in self.outcomes if each.status.value != "retrying"]

    async def _deliver(self, parcel: Deliver) -> None:
        match parcel.kind:
            case "odd":
                raise InvalidMessage("no such street")
            case "bad":
                raise ValueError(f"nobody at {parcel.address}")
            case "shaky" if parcel.kind not in self._tried:
                self._tried.add(parcel.kind)
                raise OSError("a flat tyre")


class Watched:
    """Subclasses bring the fixture `make_gateway`."""

    @pytest.fixture
    async def depot(
        self, make_gateway: MakeGateway, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> Depot:
        caplog.set_level("INFO", logger="pump")
        depot = Depot(make_gateway(), tmp_path)
        with capture_logs() as self.lines:
            await depot.run()
        return depot

    async def test_when_messages_end_then_observers_and_the_ledger_are_told_the_same(
        self, depot: Depot
    ) -> None:
        """R23, R24: message id, status and attempt of each delivery."""
        told = Counter(
            (each.message_id, each.status.value, each.attempt) for each in depot.outcomes
        )
        rows = await asyncio.to_thread(sqlite_rows, depot.ledger)
        kept = Counter((row.message_id, row.status, row.attempts) for row in rows)

        assert kept == told
        statuses = Counter(status for _, status, _ in told.elements())
        assert statuses == {"processed": 2, "retrying": 2, "dead-lettered": 2}
        assert {row.reason for row in rows} == {None, "DeliveryError", "Unacceptable"}
        assert {row.error_type for row in rows} == {None, "ValueError", "OSError", "InvalidMessage"}

    async def test_when_messages_end_then_each_is_counted_once(self, depot: Depot) -> None:
        """R60: sent, received, completed, retried and rejected by reason, and how long it took."""
        value = depot.app.counters.value

        assert value(vocabulary.MESSAGES_SENT, queue="parcels") == 4
        assert value(vocabulary.MESSAGES_RECEIVED, queue="parcels") == 6
        assert value(vocabulary.COMPLETED, queue="parcels") == 2
        assert value(vocabulary.RETRIED, queue="parcels") == 2
        assert value(vocabulary.REJECTED, reason="DeliveryError") == 1
        assert value(vocabulary.REJECTED, reason="Unacceptable") == 1
        assert value(vocabulary.ERRORS, error_type="ValueError") == 2
        handled = [
            each for each in depot.metrics.durations() if each.name.startswith("messaging.p")
        ]
        assert sum(sum(each.counts) for each in handled) == 6

    async def test_when_messages_end_then_each_delivery_has_one_line_without_its_body(
        self, depot: Depot
    ) -> None:
        """R57, R61: queue, outcome and error's type; levels that fit; neither body nor text."""
        lines = [each for each in self.lines if each["event"] == vocabulary.MESSAGE_SETTLED]

        assert Counter((each["status"], each["log_level"]) for each in lines) == {
            ("processed", "info"): 2,
            ("retrying", "warning"): 2,
            ("dead-lettered", "error"): 2,
        }
        assert {each["queue"] for each in lines} == {"parcels"}
        assert {each["correlation_id"] for each in lines} == {f"c-{kind}" for kind in _KINDS}
        assert SECRET not in str(self.lines)
