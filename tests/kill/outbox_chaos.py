"""The driver of the outbox's kill tests: begins lives, kills them and the server, keeps the ledger.

One thread and no event loop, so that what is read from a life is in the ledger before what comes
after it is decided.
"""

from __future__ import annotations

import heapq
import json
import os
import random
import selectors
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import attrs
import psycopg

from tests.brokers.postgres_server import PostgresServer

from .fork_server import Death, ForkServer
from .outbox_ledger import Ledger

SAFE: Final = ("fsync=off", "synchronous_commit=on", "full_page_writes=on")
"""Processes are killed, and not the machine: what is written is there."""
SCHEMA: Final = "chaos"
MAX_WAITING: Final = 400
PATIENCE_S: Final = 60.0
_MAX_STEPS: Final = {"post": 16, "relay": 24, "work": 30}
_LONG: Final = 10**9
_UNHANDLED: Final = "SELECT 1 FROM orders WHERE id NOT IN (SELECT id FROM effects) LIMIT 1"
_TIMED: Final = 0.4
"""The share of lives that are killed by the clock, and not after some step of theirs."""
_LIFE_S: Final = 0.06
_MAX_DELAY_S: Final = 0.003


@attrs.frozen
class Slot:
    """What is to run at any time; one life of it after the other."""

    role: str
    libraries: Sequence[str] = ("",)


@attrs.define(eq=False)
class _Life:
    number: int
    slot: int
    step: str = ""
    """What it was at last; empty before it said anything."""
    peer: _Peer | None = None
    is_timed: bool = False
    """Whether it is killed some time after it has begun to work."""


@attrs.define(eq=False)
class _Peer:
    """The end here of a life's socket."""

    socket: socket.socket
    life: _Life | None = None
    unread: bytes = b""

    def answer(self, number: int, *, is_accepted: bool) -> None:
        with suppress(OSError):
            self.socket.sendall(json.dumps([number, is_accepted]).encode() + b"\n")


class Chaos:
    """Lives in their slots, until so many were killed."""

    def __init__(
        self,
        server: PostgresServer,
        slots: Sequence[Slot],
        *,
        seed: int,
        crash_every: int = 0,
        fault_rate: float = 0.0,
        bug: str = "",
    ) -> None:
        """`crash_every` is how many kills there are to one crash of the server, none for 0;
        `fault_rate` how often the broker does not answer, whether it has accepted or not.
        """
        self.ledger = Ledger()
        self.kill_count = 0
        self._chance = random.Random(seed)
        self._bug = bug
        self._crash_every = crash_every
        self._fault_rate = fault_rate
        self._server = server
        self._slots = slots
        self._is_handled = any(slot.role == "work" for slot in slots)
        self._running: dict[int, _Life | None] = dict.fromkeys(range(len(slots)))
        self._lives: dict[int, _Life] = {}
        self._number = 0
        self._timers: list[tuple[float, int]] = []
        self._places = [1] * len(slots)
        self._asking: list[tuple[_Peer, int]] = []
        self._kills_to_crash = 0
        self._is_counting = True
        self._selector = selectors.DefaultSelector()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        # Of its own: the address of a socket has a hundred characters at most.
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-")))
        self._errors = folder / "errors"
        self._address = folder / "ledger"
        self._listener = self._stack.enter_context(socket.socket(socket.AF_UNIX))
        self._listener.bind(str(self._address))
        self._listener.listen(64)
        self._listener.setblocking(False)
        self._make_tables()
        roles = [[slot.role, each] for slot in self._slots for each in slot.libraries]
        order = {**self._order, "warm_up": roles}
        self._forks = self._stack.enter_context(
            ForkServer("tests.kill.outbox_lives", self._errors, order)
        )
        self._make_tables()
        for each in (self._listener, self._forks):
            self._selector.register(each, selectors.EVENT_READ)
        return self

    def _make_tables(self) -> None:
        with psycopg.connect(self._server.url(), autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA}, {SCHEMA}_queues CASCADE".encode())
            connection.execute("DROP TABLE IF EXISTS orders, effects")
            connection.execute("CREATE TABLE orders (id text PRIMARY KEY)")
            connection.execute("CREATE TABLE effects (id text)")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, _Peer):
                key.data.socket.close()
        self._selector.close()
        self._stack.close()

    def run(self, kills: int) -> None:
        """Return when so many processes were killed."""
        until_s, seen = time.monotonic() + PATIENCE_S, 0
        while self.kill_count < kills:
            for slot, life in self._running.items():
                if life is None:
                    self._begin(slot)
            self._turn()
            if self._crash_every and self._kills_to_crash >= self._crash_every:
                self._crash()
            if self.kill_count > seen:
                seen, until_s = self.kill_count, time.monotonic() + PATIENCE_S
            assert time.monotonic() < until_s, f"no kill for {PATIENCE_S} s\n{self.errors()}"

    def finish(self) -> set[str]:
        """End every life, let what waits be sent and handled, and return the names of the rows that
        were committed.
        """
        self._end_all()
        if self._is_handled:
            self._begin(self._slot_of("work"), is_spared=True)
            self._until(lambda: not self._ask(f"SELECT 1 FROM {SCHEMA}.outbox LIMIT 1"))
            self._until(lambda: not self._ask(_UNHANDLED))
            self._end_all()
            # What came twice is handled twice, if it is.
            self._begin(self._slot_of("work"), is_spared=True, until_empty=True)
            self._until(lambda: not self._lives)
            self.ledger.effects = [id_ for (id_,) in self._ask("SELECT id FROM effects")]
        else:
            self._begin(self._slot_of("relay"), is_spared=True)
            self._until(lambda: not self._ask(f"SELECT 1 FROM {SCHEMA}.outbox LIMIT 1"))
        self._end_all()
        return {id_ for (id_,) in self._ask("SELECT id FROM orders")}

    def _until(self, is_so: Callable[[], bool]) -> None:
        until_s = time.monotonic() + PATIENCE_S
        while not is_so():
            self._turn()
            assert time.monotonic() < until_s, f"something waits\n{self.errors()}"

    def errors(self) -> str:
        """What lives have complained of."""
        return self._errors.read_text(errors="replace")

    # Lives.

    @property
    def _order(self) -> dict[str, Any]:
        """What all lives are told."""
        return {
            "url": self._server.url(),
            "socket": str(self._address),
            "queues": 1 if self._is_handled else 3,
            "bug": self._bug,
        }

    def _begin(self, slot: int, *, is_spared: bool = False, until_empty: bool = False) -> None:
        self._number += 1
        life = self._running[slot] = self._lives[self._number] = _Life(self._number, slot)
        role, steps = self._slots[slot].role, _LONG
        if is_spared:
            pass
        elif self._chance.random() < _TIMED:
            life.is_timed = True
        else:
            steps = self._chance.randint(1, _MAX_STEPS[role])
        order = {
            **self._order,
            "role": role,
            "library": self._chance.choice(self._slots[slot].libraries),
            "slot": slot,
            "until_empty": until_empty,
            "place": self._places[slot],
            "steps": steps,
            "delay_s": self._chance.choice((0.0, self._chance.random() * _MAX_DELAY_S)),
        }
        self._forks.fork(life.number, order)

    def _end_all(self) -> None:
        """Kill those that run, without counting it, and let their transactions end."""
        self._is_counting = False
        for life in self._lives.values():
            self._forks.kill(life.number)
        while self._lives:
            self._turn()
        others = "SELECT 1 FROM pg_stat_activity WHERE backend_type = 'client backend'"
        while self._ask(f"{others} AND pid <> pg_backend_pid()"):
            time.sleep(0.01)

    def _slot_of(self, role: str) -> int:
        return next(at for at, slot in enumerate(self._slots) if slot.role == role)

    def _turn(self, most_s: float = 0.05) -> bool:
        """Read what there is, and kill whose time has come. Whether there was anything."""
        if self._timers:
            most_s = min(most_s, max(0.0, self._timers[0][0] - time.monotonic()))
        ready = self._selector.select(most_s)
        for key, _ in ready:
            if key.fileobj is self._listener:
                self._take_connections()
            elif isinstance(key.data, _Peer):
                self._read(key.data)
        for death in (
            self._forks.deaths() if self._forks in [key.fileobj for key, _ in ready] else []
        ):
            self._end(death)
        while self._timers and self._timers[0][0] <= time.monotonic():
            self._forks.kill(heapq.heappop(self._timers)[1])
        self._let_post()
        return bool(ready)

    def _end(self, death: Death) -> None:
        life = self._lives.pop(death.number)
        # It may have connected, and said much, since the last look.
        self._take_connections()
        while life.peer is not None:
            self._read(life.peer)
        self._running[life.slot] = None
        if death.status == -signal.SIGKILL and life.step:
            if self._is_counting:
                self.kill_count += 1
                self._kills_to_crash += 1
                self.ledger.kills[f"{self._slots[life.slot].role}: {life.step}"] += 1
            self.ledger.end(life.number, "a kill")
        else:
            assert death.status in (0, -signal.SIGKILL), self.errors()
            self.ledger.end(life.number, "")

    def _let_post(self) -> None:
        """Posters wait while relays have enough to do."""
        if self._asking and self.ledger.waiting_count < MAX_WAITING:
            for peer, number in self._asking:
                peer.answer(number, is_accepted=True)
            self._asking.clear()

    # What they say.

    def _take_connections(self) -> None:
        with suppress(BlockingIOError):
            while True:
                connection, _ = self._listener.accept()
                connection.setblocking(True)
                peer = _Peer(connection)
                self._selector.register(connection, selectors.EVENT_READ, peer)
                # The first it says is who it is.
                while peer.life is None and self._read(peer):
                    pass

    def _read(self, peer: _Peer) -> bool:
        try:
            found = peer.socket.recv(262_144)
        except ConnectionResetError:
            found = b""
        if not found:
            self._selector.unregister(peer.socket)
            peer.socket.close()
            if peer.life is not None:
                peer.life.peer = None
            return False
        *lines, peer.unread = (peer.unread + found).split(b"\n")
        for line in lines:
            self._hear(peer, json.loads(line))
        return True

    def _hear(self, peer: _Peer, said: dict[str, Any]) -> None:
        if "life" in said:
            # Unknown where it died, and was known to have, before its connection was taken.
            peer.life = self._lives.get(said["life"]) or _Life(said["life"], 0)
            peer.life.peer, peer.life.step = peer, "start"
            return
        life = peer.life
        assert life is not None
        match said:
            case {"step": step}:
                if life.is_timed and life.step == "start":
                    due_s = time.monotonic() + self._chance.random() * _LIFE_S
                    heapq.heappush(self._timers, (due_s, life.number))
                life.step = step
            case {"intend": orders}:
                self.ledger.intend(life.number, orders)
                self._places[life.slot] = 1 + max(place for _, _, place in orders)
            case {"told": how, "ids": ids}:
                self.ledger.tell(ids, how)
            case {"take": queue}:
                self.ledger.take(life.number, queue)
            case {"settle": queue}:
                self.ledger.settle(life.number, queue)
            case {"handled": id_}:
                self.ledger.handle(id_)
            case {"ask": number, "may": "post"}:
                self._asking.append((peer, number))
            case {"ask": number, "send": queue, "ids": ids}:
                peer.answer(number, is_accepted=self._accept(life.number, queue, ids))
            case _:
                raise AssertionError(said)

    def _accept(self, life: int, queue: str, ids: list[str]) -> bool:
        is_answered = self._chance.random() >= self._fault_rate
        if is_answered or self._chance.random() < 0.5:
            self.ledger.accept(life, queue, ids)
        if not is_answered:
            self.ledger.fault(life, queue)
        return is_answered

    # The server.

    def _crash(self) -> None:
        """`kill -9` of one of its processes, after which it starts anew by itself, or of all of it
        as `pg_ctl -m immediate stop` does it.
        """
        self._kills_to_crash = 0
        self.kill_count += 1
        while self._turn(0):
            pass
        if self._chance.random() < 0.3:
            self.ledger.begin_crash("immediate")
            self._server.kill()
            self._server.start()
        else:
            self.ledger.begin_crash("kill -9 of a backend")
            self._kill_backend()
        self._ask("SELECT 1")
        while self._turn(0):
            pass
        self.ledger.end_crash()

    def _kill_backend(self) -> None:
        """Returns when the server has noticed, as it then ends all the others too."""
        with psycopg.connect(self._server.url(), autocommit=True) as own:
            others = own.execute(
                "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
                "ORDER BY backend_type = 'client backend' DESC, random()"
            )
            for [process] in others:
                # It may have ended by itself meanwhile.
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
                    break
            with suppress(psycopg.OperationalError):
                while True:
                    own.execute("SELECT 1")

    def _ask(self, sql: str) -> list[tuple[Any, ...]]:
        """Of the database, as soon as it answers."""
        until_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                with psycopg.connect(self._server.url(), autocommit=True) as connection:
                    return connection.execute(sql.encode()).fetchall()
            except psycopg.OperationalError:
                if time.monotonic() > until_s:
                    raise
                time.sleep(0.01)
