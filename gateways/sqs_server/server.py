"""The server: engine, operations, HTTP and event-source mappings, tied together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from pump.clock import SYSTEM_CLOCK, Clock
from pump.errors import ConfigurationError
from pump.observability import vocabulary
from pump.observability.log import get_logger
from pump.ports import QueueStats
from pump.serving import MappingStats, ServerOptions

from .config import LocalConfig, QueueConfig, load_config
from .engine import Queue, SqsEngine, open_store
from .errors import SqsError
from .http import HttpServer
from .mappings import EventSource
from .operations import Operations
from .protocol import Call

_log = get_logger("gateways.sqs_server")


class SqsServer:
    """SQS on this machine; the `QueueServer` behind `pump local`."""

    def __init__(self, options: ServerOptions, clock: Clock = SYSTEM_CLOCK) -> None:
        self._options = options
        self._clock = clock
        self._engine = SqsEngine(clock, open_store(options.data, keeps_leases=options.keeps_leases))
        self._operations = Operations(self._engine, clock=clock, is_strict=options.is_strict)
        self._http = HttpServer(
            self._operations.call,
            clock=clock,
            credentials={name: each.reveal() for name, each in options.credentials.items()},
            allowed_hosts=options.allowed_hosts,
        )
        self._config = LocalConfig()
        self._sources: list[EventSource] = []
        self._running: set[asyncio.Task[None]] = set()
        self._endpoint = ""

    @property
    def endpoint(self) -> str:
        return self._endpoint

    async def open(self) -> None:
        """Recover what is stored, make the queues asked for, listen, start the mappings.

        The file is read and the functions are found first: what is wrong with them is said
        before any request is served.
        """
        if self._options.config is not None:
            self._config = await asyncio.to_thread(load_config, self._options.config)
        try:
            await self._engine.open()
            await self._listen()
        finally:
            for warning in self._config.warnings:
                _log.warning(vocabulary.CONFIG_DOUBTED, detail=warning)
        for source in self._sources:
            task = asyncio.create_task(source.run(), name=f"mapping of {source.config.queue}")
            self._running.add(task)
            task.add_done_callback(self._ended)

    async def _listen(self) -> None:
        try:
            await self._make_queues()
            self._sources = await self._find_functions()
            bound = await self._http.start(self._options.host, self._options.port)
            self._endpoint = bound.url
            if self._options.on_listening is not None:
                self._options.on_listening(bound.url)
        except BaseException:
            # Not a stop: consumers of what a server before this one gave out go on.
            await self._engine.aclose(frees=False)
            raise

    async def aclose(self) -> None:
        """Let requests and functions that run come to their end, then let go of the files."""
        try:
            await asyncio.gather(self._http.aclose(), *(source.drain() for source in self._sources))
            if self._running:
                await asyncio.wait(self._running)
        finally:
            for task in self._running:
                task.cancel()
            await self._engine.aclose()

    def queues(self) -> Sequence[QueueStats]:
        return [self._stats(queue) for _, queue in sorted(self._engine.queues.items())]

    def mappings(self) -> Sequence[MappingStats]:
        return [
            MappingStats(
                queue=source.config.queue,
                function=source.config.function,
                invocations=source.counters.invocations,
                succeeded=source.counters.succeeded,
                failed=source.counters.failed,
                filtered=source.counters.filtered,
            )
            for source in self._sources
        ]

    def _stats(self, queue: Queue) -> QueueStats:
        counts, address = self._engine.counts(queue), queue.address
        is_ours = (address.account, address.region) == (self._config.account, self._config.region)
        return QueueStats(
            name=address.name if is_ours else f"{address.account}/{address.region}/{address.name}",
            visible=counts.visible,
            in_flight=counts.in_flight,
            delayed=counts.delayed,
            oldest_age_s=counts.oldest_age_s,
        )

    async def _make_queues(self) -> None:
        named = {each.name for each in self._config.queues}
        extra = [QueueConfig(name=name) for name in self._options.queues if name not in named]
        for queue in [*self._config.queues, *extra]:
            await self._make_queue(queue)

    async def _make_queue(self, queue: QueueConfig) -> None:
        """Make it, or give the one that exists what the file says and leave the rest."""
        config = self._config
        attributes = dict(queue.sqs_attributes(config.account, config.region))
        exists = self._engine.find(queue.address(config.account, config.region)) is not None
        try:
            if not exists:
                await self._call("CreateQueue", QueueName=queue.name, Attributes=attributes)
            elif attributes:
                await self._call("SetQueueAttributes", QueueUrl=queue.name, Attributes=attributes)
            if queue.tags:
                await self._call("TagQueue", QueueUrl=queue.name, Tags=dict(queue.tags))
        except SqsError as error:
            raise ConfigurationError(f"queue {queue.name}", attributes, error.message) from error

    async def _call(self, operation: str, **parameters: Any) -> Mapping[str, Any]:
        return await self._operations.call(
            Call(
                operation=operation,
                parameters=parameters,
                account=self._config.account,
                region=self._config.region,
                base_url="http://localhost",
                sender=self._config.account,
                is_json=True,
            )
        )

    async def _find_functions(self) -> list[EventSource]:
        sources = []
        for mapping in self._config.mappings:
            queue = self._engine.find(
                QueueConfig(name=mapping.queue).address(self._config.account, self._config.region)
            )
            if queue is None:
                raise ConfigurationError(
                    f"{mapping.origin}.queue", mapping.queue, "add it to `queues` in the same file"
                )
            if mapping.is_enabled:
                source = EventSource(self._engine, queue, mapping, self._clock)
                await source.load()
                sources.append(source)
        return sources

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # A mistake of ours: the queue is served on, and the error must be seen.
            task.get_loop().call_exception_handler(
                {"message": "an event-source mapping ended", "exception": error, "task": task}
            )
