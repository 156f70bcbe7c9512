"""App parts: what an app runs on, and how it is exchanged while the app is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import attrs

from .clock import Clock
from .errors import ConfigurationError, PumpError
from .events import Observer
from .gateway_url import checked_gateway, gateway_from_url, without_secrets
from .observability import vocabulary
from .observability.log import get_logger
from .observability.telemetry import Telemetry
from .observing import Observers
from .ports import Gateway
from .runtime import Runtime
from .stores.ledger import Ledger
from .stores.spill import PerishableSpill, SpillStore, SqliteSpill, perishing
from .subscription import OnRoutingFailure, Subscription

_log = get_logger("pump.app")
DEFAULT_SPILL = Path(".pumphouse/spill.db")
SPILL_REMEDY = (
    "mount a volume and name a file on it, App(spill=…), or set on_routing_failure='keep'"
)


class AppParts:
    """Gateway, clock, spill, observers, ledger and telemetry of an app. The base of `App`."""

    def __init__(
        self,
        gateway: str | Gateway,
        *,
        clock: Clock,
        spill: SpillStore | Path | str,
        observers: Iterable[Observer],
        ledger: Ledger | None,
    ) -> None:
        self._gateway = gateway
        self._clock = clock
        self._spill = SqliteSpill(spill) if isinstance(spill, str | Path) else spill
        self._default_spill = self._spill if spill is DEFAULT_SPILL else None
        self._observers = Observers(observers)
        self._ledger = ledger
        if ledger is not None:
            self._observers.add(ledger.record)
        self._subscriptions: list[Subscription] = []
        self._runtime: Runtime | None = None
        self.telemetry: Telemetry | None = None

    @property
    def subscriptions(self) -> tuple[Subscription, ...]:
        """Every subscription, in the order they were added."""
        return tuple(self._subscriptions)

    @property
    def gateway_name(self) -> str:
        """The gateway's URL without its secrets, or its scheme when an object was given."""
        if isinstance(self._gateway, str):
            return without_secrets(self._gateway)
        return f"{self._gateway.capabilities.gateway}://"

    @property
    def gateway_url(self) -> str | None:
        """The gateway's URL with everything in it, secrets too; None when an object was given."""
        return self._gateway if isinstance(self._gateway, str) else None

    @property
    def clock(self) -> Clock:
        """What the app takes the time from."""
        return self._clock

    @property
    def spill(self) -> SpillStore:
        """Where rejected messages wait for queues that cannot be reached."""
        return self._spill

    @property
    def ledger(self) -> Ledger | None:
        """Where the app keeps what became of messages; None when it does not."""
        return self._ledger

    @property
    def is_spill_chosen(self) -> bool:
        """Whether somebody said where the spill is; by default it is on this machine's disk."""
        return self._spill is not self._default_spill

    async def opened_spill(self, gateway: Gateway) -> SpillStore:
        """The spill to run with. Where its place was not chosen, and a spilled message would be
        gone with the container while its original is deleted, one that takes none: originals are
        kept.
        """
        spill = self._default_spill
        if self.is_spill_chosen or not isinstance(spill, SqliteSpill):
            return self._spill
        if not _may_spill(gateway, self._subscriptions):
            return self._spill
        danger = await asyncio.to_thread(perishing, spill.path)
        if danger is None:
            return spill
        _log.warning(
            vocabulary.SPILL_PERISHABLE,
            path=str(spill.path),
            detail=f"it lies on {danger}; what is rejected and cannot be routed is kept",
            remedy=SPILL_REMEDY,
        )
        return PerishableSpill(spill.path, danger)

    def built_gateway(self) -> Gateway:
        """The gateway as it would be opened, without opening it."""
        if isinstance(self._gateway, str):
            return gateway_from_url(self._gateway, self._clock)
        return checked_gateway(self._gateway, repr(type(self._gateway)), "App(gateway)")

    @contextmanager
    def replacing(
        self,
        *,
        gateway: str | Gateway,
        clock: Clock,
        spill: SpillStore,
        observers: Iterable[Observer] = (),
    ) -> Iterator[Self]:
        """Be this app on other parts until the block ends, and as before afterwards; for tests.

        It is this very app, so handlers that hold it post through the replaced parts too. Nothing
        is written into its ledger meanwhile, nor told to its telemetry.
        """
        with self._as_before_afterwards():
            self._gateway, self._clock, self._spill = gateway, clock, spill
            self._observers, self._ledger = Observers((*self._strangers(), *observers)), None
            self.telemetry = None
            yield self

    @contextmanager
    def diverted(
        self,
        through: Callable[[Gateway], Gateway],
        ledger: Ledger,
        observers: Iterable[Observer] = (),
    ) -> Iterator[Self]:
        """Be this app with what `through` makes of its gateway, and with another ledger, until
        the block ends; everything else is as it was declared.
        """
        with self._as_before_afterwards():
            self._gateway = through(self.built_gateway())
            told = (*self._strangers(), ledger.record, *observers)
            self._observers, self._ledger = Observers(told), ledger
            yield self

    def override(
        self,
        *,
        gateway: str | Gateway | None = None,
        concurrency: Mapping[str, int] | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        """Run on another gateway, other concurrencies by subscription, another ledger.

        Before opening. It changes this very app: handlers post through the gateway that runs.
        """
        self._require_closed()
        names = [each.name for each in self._subscriptions]
        for name, count in (concurrency or {}).items():
            if name not in names:
                known = ", ".join(names) or "none"
                raise ConfigurationError("subscription", name, f"the app's own are: {known}")
            position = names.index(name)
            changed = attrs.evolve(self._subscriptions[position], concurrency=count)
            self._subscriptions[position] = changed
        if gateway is not None:
            self._gateway = gateway
        if ledger is not None:
            self._observers, self._ledger = Observers((*self._strangers(), ledger.record)), ledger

    @contextmanager
    def _as_before_afterwards(self) -> Iterator[None]:
        self._require_closed()
        kept = self._gateway, self._clock, self._spill, self._observers, self._ledger
        telemetry = self.telemetry
        try:
            yield
        finally:
            self._gateway, self._clock, self._spill, self._observers, self._ledger = kept
            self.telemetry = telemetry

    def _strangers(self) -> list[Observer]:
        """The observers without the ledger."""
        own = None if self._ledger is None else self._ledger.record
        return [each for each in self._observers if each != own]

    def _require_closed(self) -> None:
        if self._runtime is not None:
            raise PumpError("the app is open already; do this before it opens, or after it closed")


def _may_spill(gateway: Gateway, subscriptions: Iterable[Subscription]) -> bool:
    """Whether a spill could be all that is left of a message: queues of a process die with it."""
    return gateway.capabilities.is_durable and any(
        each.on_routing_failure is OnRoutingFailure.SPILL
        and (each.dead_letter_queue is not None or each.invalid_queue is not None)
        for each in subscriptions
    )
