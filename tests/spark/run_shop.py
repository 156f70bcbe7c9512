"""What the tests of runs in one session share: an account that the workers know, a ledger."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import attrs
import pytest

from pump import App
from pump.ports import QueueStats
from tests.brokers.aws_account import AwsAccount
from tests.ledger.support import parquet_rows

from .run_apps import Parcel

_T = TypeVar("_T")


ACCOUNT = "100000000078"
"""One for all tests: Spark starts other Python workers for other environments."""


@attrs.frozen
class Depot:
    """A queue, an app on it, and what became of the parcels."""

    app: App
    folder: Path

    @property
    def queue(self) -> str:
        return self.app.subscriptions[0].queue

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger"

    def send(self, count: int, *, first: int = 0) -> None:
        """Send parcels, numbered."""
        _run(self._send(range(first, first + count)))

    async def _send(self, numbers: range) -> None:
        async with self.app:
            for spec in self.app.subscriptions[0].queue_specs():
                await self.app.admin.ensure(spec, self.app.subscriptions[0].make_channels)
            await self.app.post_all([Parcel(number=n) for n in numbers])

    def depth(self, queue: str) -> int:
        """All that is in a queue."""

        async def look() -> QueueStats:
            async with self.app:
                return await self.app.admin.stats(queue)

        stats = _run(look())
        return stats.visible + stats.in_flight + stats.delayed

    def handled(self) -> Counter[int]:
        """How often each parcel was given to a handler."""
        return Counter(int(line.split()[0]) for line in self._lines())

    @contextmanager
    def when_handled(self, count: int, act: Callable[[], None]) -> Iterator[None]:
        """Act, once, as soon as so many parcels were given to handlers."""
        is_over = threading.Event()

        def watch() -> None:
            while not is_over.wait(0.05):
                if len(self._lines()) >= count:
                    act()
                    return

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            yield
        finally:
            is_over.set()
            watching.join()

    def workers(self) -> set[str]:
        """The processes that handled something."""
        return {line.split()[1] for line in self._lines()}

    def rows(self) -> Counter[tuple[str, int]]:
        """The ledger, by status and attempt."""
        return Counter((row.status, row.attempts) for row in parquet_rows(self.ledger))

    def _lines(self) -> list[str]:
        path = self.folder / "handled"
        return path.read_text().splitlines() if path.exists() else []


@contextmanager
def known_to_workers(
    spark: Any, account: AwsAccount, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """Give the workers of jobs in this block, and this process, the credentials of `ACCOUNT`;
    the URL for its queues on the account's server.
    """
    credentials = {
        "AWS_ACCESS_KEY_ID": ACCOUNT,
        "AWS_SECRET_ACCESS_KEY": account.secret_access_key,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    for name, value in credentials.items():
        monkeypatch.setenv(name, value)
    environment = spark.sparkContext.environment
    before = dict(environment)
    environment.update(credentials)
    try:
        yield f"sqs://{account.region}?endpoint={account.endpoint_url}"
    finally:
        environment.clear()
        environment.update(before)


def _run(work: Coroutine[Any, Any, _T]) -> _T:
    return asyncio.run(work)
