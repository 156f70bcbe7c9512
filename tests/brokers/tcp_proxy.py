"""A TCP proxy on loopback whose connections a test can cut or freeze, or whose door it can shut."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class TcpProxy:
    """Passes bytes on, both ways, between whoever connects and one port."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_shut = False
        self._flows: set[asyncio.Event] = set()
        self._severs_after: int | None = None
        self._severs_at_answer_to = b""
        self._is_told = False
        self.port = 0
        self.connection_count = 0
        self.loses_answers = False
        """Whether what the server says is dropped, and what it is told goes on."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.sever()
        await self._server.wait_closed()

    def sever(self) -> None:
        """Cut every connection, as a broken cable does it: without a word."""
        for writer in list(self._writers):
            writer.transport.abort()
        for flow in self._flows:
            flow.set()

    def sever_after(self, byte_count: int) -> None:
        """Sever once so many bytes more were passed on, both ways together."""
        self._severs_after = byte_count

    def sever_at_answer_to(self, words: bytes) -> None:
        """Sever when the next thing that has these words in it is answered: it was done, and the
        answer is lost.
        """
        self._severs_at_answer_to = words

    def shut(self) -> None:
        """Sever, and let nobody in until `let_in`."""
        self._is_shut = True
        self.sever()

    def let_in(self) -> None:
        """Take connections again."""
        self._is_shut = False

    def freeze(self) -> None:
        """Pass nothing more on, and say nothing of it, on the connections there are; those to
        come are not concerned.
        """
        for flow in self._flows:
            flow.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_shut:
            writer.transport.abort()
            return
        self.connection_count += 1
        try:
            theirs = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        flow = asyncio.Event()
        flow.set()
        self._flows.add(flow)
        self._writers |= {writer, theirs[1]}
        await asyncio.gather(
            self._pass_on(reader, theirs[1], flow),
            self._pass_on(theirs[0], writer, flow, is_answer=True),
        )
        self._writers -= {writer, theirs[1]}
        self._flows.discard(flow)

    async def _pass_on(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        flow: asyncio.Event,
        *,
        is_answer: bool = False,
    ) -> None:
        try:
            while data := await reader.read(65_536):
                await flow.wait()
                if is_answer and self.loses_answers:
                    continue
                if is_answer and self._is_told:
                    self._is_told, self._severs_at_answer_to = False, b""
                    self.sever()
                    return
                if not is_answer and self._severs_at_answer_to:
                    self._is_told |= self._severs_at_answer_to in data
                writer.write(data)
                await writer.drain()
                self._count(len(data))
        except OSError:
            pass
        finally:
            writer.transport.abort()

    def _count(self, byte_count: int) -> None:
        if self._severs_after is None:
            return
        self._severs_after -= byte_count
        if self._severs_after <= 0:
            self._severs_after = None
            self.sever()
