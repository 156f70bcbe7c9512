"""The SDK's client, loaded when a gateway opens, with a reader that nothing stops.

The SDK takes apart what it reads with code that fails for some subjects and headers. Then its
reader ends, without a word, and the same message, delivered again, ends the next one as well: a
foreign message could keep a pump from working. So messages are parsed here, and handed
over at once, not through a queue and a task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from nats.aio.client import Client

from .link import Incoming, headers_of

__all__ = ["PumpClient", "TlsClient"]

Receiver = Callable[[Incoming], None]


class PumpClient(Client):
    """Hands what comes to receivers, in the order it came."""

    def __init__(self) -> None:
        super().__init__()
        self._receivers: dict[int, Receiver] = {}
        self.heard_count = 0
        """How many messages have come; while it stands still, the server may be gone."""

    @property
    def server_info(self) -> dict[str, Any]:
        """What the server said of itself on connecting."""
        return self._server_info

    async def hear(self, subject: str, receiver: Receiver) -> Any:
        """Have everything on a subject given to a receiver, until `fall_silent`."""

        # For what comes before its number is known, and for an SDK that no longer calls
        # `_process_msg`. Its own messages look the same.
        async def receive(message: Any) -> None:
            receiver(message)

        subscription = await self.subscribe(subject, cb=receive)
        self._receivers[subscription._id] = receiver
        return subscription

    async def fall_silent(self, subscription: Any) -> None:
        """Hear no more, after what the server sent before it knew."""
        await subscription.drain()
        self._receivers.pop(subscription._id, None)

    def abort(self) -> None:
        """Cut the connection off: closing it waits for what was not sent, perhaps for ever."""
        self._status = Client.CLOSED
        own = (self._reading_task, self._ping_interval_task, self._flusher_task)
        theirs = (each._wait_for_msgs_task for each in self._subs.values())
        for task in (*own, *theirs):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        self._subs.clear()
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        """A connection that was reset cannot be flushed, which the SDK tries: it would stop there,
        half-way, and in a task that nothing waits for.
        """
        try:
            await super()._close(status, do_cbs)
        except OSError:
            self.abort()
            if do_cbs and self._closed_cb is not None:
                await self._closed_cb()

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes
    ) -> None:
        self.heard_count += 1
        receiver = self._receivers.get(sid)
        if receiver is None:
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        receiver(
            Incoming(
                subject.decode("utf-8", "replace"),
                reply.decode("utf-8", "replace"),
                data,
                headers_of(headers) if headers else None,
            )
        )

    async def _read_loop(self) -> None:
        await super()._read_loop()
        if self.is_connected:
            # It ended of something unforeseen; what waits must not wait for the next ping.
            await self._process_op_err(ConnectionError("the SDK stopped reading"))


class TlsClient(PumpClient):
    """Sends nothing, no password above all, to a server that offers no TLS.

    The SDK itself encrypts only where the server asks for it.
    """

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if initial_connection:
            if not (info.get("tls_required") or info.get("tls_available")):
                raise OSError("the server offers no TLS, and the settings ask for it")
            info["tls_required"] = True
        await super()._process_info(info, initial_connection)
