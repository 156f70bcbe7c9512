"""Processes that share queues on S3: started, told, stopped and killed, and what they said."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Self

import attrs

from tests.brokers.aws_account import AwsAccount

from .child_process import ROOT, Line

PATIENCE_S = 80.0
_READ = 1 << 16


@attrs.frozen(kw_only=True)
class Bucket:
    """A bucket of a test's own."""

    aws: AwsAccount
    name: str

    @classmethod
    def make(cls, aws: AwsAccount) -> Bucket:
        name = f"kill-{aws.account_id}"
        place = {"LocationConstraint": aws.region}
        client = aws.client("s3")
        client.create_bucket(Bucket=name, CreateBucketConfiguration=place)
        client.close()
        return cls(aws=aws, name=name)

    def url(self, layout: str, prefix: str = "") -> str:
        """What an app is given."""
        query = f"region={self.aws.region}&endpoint={self.aws.endpoint_url}&layout={layout}"
        return f"s3://{self.name}/{prefix}?{query}"

    def keys(self) -> list[str]:
        """Everything that is in it, as S3 lists it."""
        client = self.aws.client("s3")
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=self.name)
        keys = [each["Key"] for page in pages for each in page.get("Contents", [])]
        client.close()
        return keys


class Child:
    """A running `child_s3`, and all it has said."""

    def __init__(self, process: Process, mode: str) -> None:
        self.process = process
        self.mode = mode
        self.said: list[Line] = []
        self.is_killed = False
        self._rest = b""

    def heard(self, text: bytes) -> None:
        *lines, self._rest = (self._rest + text).split(b"\n")
        self.said += [Line.parse(line.decode()) for line in lines]

    def numbers(self, word: str) -> list[int]:
        """The jobs of which it said this, in order, each as often as it said so."""
        return [line.number for line in self.said if line.word == word]

    def tell(self, line: str) -> None:
        """One line for its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())

    def dismiss(self) -> None:
        """The end of its standard input: it finishes and ends."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def signal(self, number: signal.Signals) -> None:
        self.is_killed = self.is_killed or number == signal.SIGKILL
        self.process.send_signal(number)


class Company:
    """The processes of a test; `until` waits for what they say. All are killed at the end."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.children: list[Child] = []
        self._readers: list[asyncio.Task[None]] = []
        self._news = asyncio.Event()

    async def start(self, mode: str, number: float, *, lease_s: float = 60.0) -> Child:
        """One more, which may not be ready yet."""
        program = [sys.executable, "-m", "tests.kill.child_s3", self.url]
        process = await asyncio.create_subprocess_exec(
            *program, f"{lease_s}", mode, f"{number:g}", stdin=PIPE, stdout=PIPE, cwd=ROOT
        )
        child = Child(process, mode)
        self.children.append(child)
        self._readers.append(asyncio.create_task(self._listen(child), name=f"listen {mode}"))
        return child

    async def _listen(self, child: Child) -> None:
        assert child.process.stdout is not None
        while text := await child.process.stdout.read(_READ):
            child.heard(text)
            self._news.set()
        await child.process.wait()
        self._news.set()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until the company has said what it takes; not longer than it stays silent."""
        while not is_so():
            self._news.clear()
            self._check()
            async with asyncio.timeout(PATIENCE_S):
                await self._news.wait()

    def _check(self) -> None:
        """Nobody may have failed on its own."""
        for child in self.children:
            code = child.process.returncode
            assert code in (None, 0) or child.is_killed, f"{child.mode} ended with {code}"

    async def ready(self) -> None:
        """Wait until all are."""
        await self.until(lambda: all(child.numbers("ready") for child in self.children))

    def said(self, word: str) -> Counter[int]:
        """How often each job was named with this word, by all."""
        return Counter(number for child in self.children for number in child.numbers(word))

    def lines(self, word: str) -> list[Line]:
        return [line for child in self.children for line in child.said if line.word == word]

    async def kill(self, child: Child) -> None:
        """`kill -9`; returns when all it had said is heard."""
        child.signal(signal.SIGKILL)
        await self._readers[self.children.index(child)]

    async def death_of(self, child: Child) -> None:
        """Wait until it has died by its own hand; returns when all it had said is heard."""
        child.is_killed = True
        async with asyncio.timeout(PATIENCE_S):
            await self._readers[self.children.index(child)]

    async def dismiss(self, *children: Child) -> None:
        """Have these end by themselves, with exit code 0."""
        for child in children:
            child.dismiss()
        await self._end(children)

    async def terminate(self, *children: Child) -> None:
        """SIGTERM, which ends them with exit code 0, unless they were hardly there yet."""
        for child in children:
            child.signal(signal.SIGTERM)
        await self._end(children)

    async def _end(self, children: tuple[Child, ...]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*(self._readers[self.children.index(each)] for each in children))
        codes = [child.process.returncode for child in children if child.said]
        assert codes == [0] * len(codes)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for child in self.children:
            if child.process.returncode is None:
                # A stopped process is killed all the same.
                child.signal(signal.SIGKILL)
        await asyncio.gather(*self._readers)
