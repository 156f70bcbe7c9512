"""Queues: those of a gateway that are in use, each opened once and shared by its users."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import suppress

import attrs

from pump.clock import Clock
from pump.errors import ConfigurationError, ConnectionFailed, QueueNotFound
from pump.message import Message, new_id
from pump.subscription import MakeChannels, QueueSpec

from .layout import Layout, QueueDescription, QueueKeys, StoredQueue, Surroundings, queue_of
from .queue_options import QueueFile, Wanted, declare, read, reread, validate
from .settings import S3Settings
from .store.objects import List, ObjectStore, Page, Reply, ServerTime, Unknown, drive

LOOK_AGAIN_S = 60.0
"""How long others may have changed a queue's settings before this process knows."""


@attrs.frozen(kw_only=True)
class QueueEnvironment:
    """What all queues of a gateway work with."""

    settings: S3Settings
    store: ObjectStore
    time: ServerTime
    clock: Clock


@attrs.define(eq=False)
class _Opened:
    queue: StoredQueue
    file: QueueFile
    looked_at_s: float


class QueueCache:
    """Opens queues at their first use; what a queue is like is read then, and seldom again."""

    def __init__(self, environment: QueueEnvironment) -> None:
        self._environment = environment
        self._open: dict[str, _Opened] = {}
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._is_closed = False

    async def of(self, name: str) -> StoredQueue:
        """The queue of this name; `QueueNotFound` when there is none."""
        opened = self._open.get(name)
        if opened is not None and not self._is_due(opened):
            return opened.queue
        async with self._turns[name]:
            opened = self._open.get(name)
            if opened is None:
                opened = self._made(await drive(read(self._keys(name)), self._environment.store))
            elif self._is_due(opened):
                opened = await self._looked_at_again(name, opened)
        return opened.queue

    async def facts_of(self, name: str) -> QueueDescription:
        """What a queue is like now; `QueueNotFound` when there is none."""
        return (await drive(read(self._keys(name)), self._environment.store)).facts

    async def ensure(self, spec: QueueSpec, make: MakeChannels) -> None:
        """As `AdminPort.ensure`. Creating one that is there changes its settings, but for the
        layout, unless only the name counts.
        """
        wanted = Wanted.from_spec(spec)
        if make is MakeChannels.VALIDATE:
            await drive(validate(self._keys(spec.name), wanted), self._environment.store)
        elif make is MakeChannels.CREATE:
            if spec.dead_letter_queue is not None:
                await self._declare(Wanted.from_spec(QueueSpec(name=spec.dead_letter_queue)))
            await self._declare(wanted)

    async def names(self) -> AsyncIterator[str]:
        """Every queue there is, by key. However full they are, a page or two each: behind a page
        that ends within a queue, the next begins behind that queue.
        """
        prefix = f"{self._environment.settings.root}queues/"
        after, is_last = "", False
        while not is_last:
            page = await self._page(prefix, after)
            for entry in page.entries:
                name = queue_of(entry.key, self._environment.settings.root)
                if name is not None:
                    yield name
            is_last = page.is_last
            if not is_last:
                after = _behind(page.entries[-1].key, prefix)

    async def aclose(self) -> None:
        """Close every queue that is open. A store that does not answer is waited for no longer than
        for one request; what was being handed back runs out.
        """
        self._is_closed = True
        opened, self._open = list(self._open.values()), {}
        with suppress(TimeoutError):
            async with self._environment.clock.timeout(self._environment.settings.patience_s):
                await asyncio.gather(*(each.queue.aclose() for each in opened))

    def reopen(self) -> None:
        """Let queues be opened again."""
        self._is_closed = False

    async def _declare(self, wanted: Wanted) -> None:
        name, environment = wanted.spec.name, self._environment
        steps = declare(self._keys(name), wanted, default=environment.settings.layout)
        async with self._turns[name]:
            file = await drive(steps, environment.store)
            opened = self._open.get(name)
            if opened is None and file.facts.layout is Layout.LOG and not wanted.is_name_only:
                # A log has its own say in what the queue is like, and must be told.
                opened = self._made(file)
                await opened.queue.adopt(file.facts)
            elif opened is not None:
                await self._adopt(opened, file)

    def _is_due(self, opened: _Opened) -> bool:
        return self._environment.clock.now_s() - opened.looked_at_s >= LOOK_AGAIN_S

    async def _looked_at_again(self, name: str, opened: _Opened) -> _Opened:
        # Before the look: calls that come meanwhile go on with what is known.
        opened.looked_at_s = self._environment.clock.now_s()
        steps = reread(self._keys(name), opened.file)
        try:
            file = await drive(steps, self._environment.store)
        except QueueNotFound:
            await self._open.pop(name).queue.aclose()
            raise
        if file.facts.layout is not opened.file.facts.layout:
            # It was removed and made anew.
            await self._open.pop(name).queue.aclose()
            return self._made(file)
        await self._adopt(opened, file)
        return opened

    async def _adopt(self, opened: _Opened, file: QueueFile) -> None:
        if file.facts != opened.file.facts:
            await opened.queue.adopt(file.facts)
        opened.file = file
        opened.looked_at_s = self._environment.clock.now_s()

    async def _send_to(self, name: str, message: Message) -> None:
        await (await self.of(name)).send([message], delay_s=0.0)

    def _keys(self, name: str) -> QueueKeys:
        return QueueKeys(self._environment.settings.root, name)

    def _made(self, file: QueueFile) -> _Opened:
        environment, facts = self._environment, file.facts
        if self._is_closed:
            raise ConnectionFailed(facts.name, "the gateway is closed")
        if not environment.time.is_known:
            raise ConfigurationError(
                "S3Settings.bucket",
                environment.settings.bucket,
                "the store's replies have no Date, and leases go by its clock; use another store",
            )
        surroundings = Surroundings(
            keys=self._keys(facts.name),
            store=environment.store,
            time=environment.time,
            clock=environment.clock,
            send_to=self._send_to,
            new_id=new_id,
        )
        queue = _built(facts, surroundings, environment.settings)
        opened = self._open[facts.name] = _Opened(queue, file, environment.clock.now_s())
        return opened

    async def _page(self, prefix: str, after: str) -> Page:
        reply: Reply = await self._environment.store.perform(List(prefix, after))
        if isinstance(reply, Unknown):
            raise reply.error
        assert isinstance(reply, Page)
        return reply


def _built(
    facts: QueueDescription, surroundings: Surroundings, settings: S3Settings
) -> StoredQueue:
    # A process that uses one layout need not load the other.
    if facts.layout is Layout.LOG:
        from .log.queue import LoggedQueue

        return LoggedQueue(facts, surroundings, settings.queue)
    from .leases.queue import LeasedQueue

    return LeasedQueue(facts, surroundings, settings.queue)


def _behind(key: str, prefix: str) -> str:
    """Where to go on behind this key: at its queue's facts, or behind the queue if they have been
    passed. A zero is what follows a slash in the order of keys.
    """
    root = f"{prefix}{key.removeprefix(prefix).partition('/')[0]}"
    facts = f"{root}/queue.json"
    return max(key, facts[:-1]) if key < facts else f"{root}0"
