"""Counting: a transport that says how often each operation of a service was asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from pump.errors import PumpError

from .errors import metadata_of
from .transport import Polling, Reply, Request, Transport


class CountingTransport:
    """Another transport; `counts` are requests to one service by operation, with the SDK's own
    repetitions. One that was never answered counts once.
    """

    def __init__(self, transport: Transport, service: str) -> None:
        self._transport = transport
        self._service = service
        self.counts: Counter[str] = Counter()

    async def open(self) -> None:
        await self._transport.open()

    async def call(
        self,
        service: str,
        operation: str,
        request: Request,
        *,
        target: str = "",
        polling: Polling | None = None,
    ) -> Reply:
        call = self._transport.call
        if service != self._service:
            return await call(service, operation, request, target=target, polling=polling)
        self.counts[operation] += 1
        try:
            reply = await call(service, operation, request, target=target, polling=polling)
        except PumpError as fault:
            self._note(operation, metadata_of(fault))
            raise
        self._note(operation, reply.get("ResponseMetadata") or {})
        return reply

    async def aclose(self) -> None:
        await self._transport.aclose()

    def _note(self, operation: str, metadata: Mapping[str, Any]) -> None:
        repeated = int(metadata.get("RetryAttempts") or 0)
        if repeated:
            self.counts[operation] += repeated
