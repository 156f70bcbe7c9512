"""`pump spark run` as a process of its own, on the app in `shop.py` and a `pump local` server."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

import attrs
import pytest

from pump import App, Message
from pump.queue_browser import browse
from tests.brokers.aws_account import AwsAccount

from . import processes, shop as shop_module
from .quick_java import QUICK_JAVA
from .shop import FOLDER, SUBSCRIPTION, Order

ROOT = Path(__file__).parents[2]


class Handling(NamedTuple):
    """One call of the handler."""

    number: int
    attempt: int
    pid: int


@attrs.frozen
class Shop:
    """A folder, a server's queues, and everything that is started on them."""

    folder: Path
    account: AwsAccount
    mark: str = attrs.field(factory=lambda: secrets.token_hex(8))

    @property
    def gateway(self) -> str:
        return f"sqs://{self.account.region}?endpoint={self.account.endpoint_url}"

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger"

    @property
    def temporary(self) -> Path:
        return self.folder / "tmp"

    def use_credentials(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let this process, too, reach the queues."""
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", self.account.access_key_id)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", self.account.secret_access_key)

    @property
    def environment(self) -> dict[str, str]:
        self.temporary.mkdir(exist_ok=True)
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("PUMP_")},
            "AWS_ACCESS_KEY_ID": self.account.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.account.secret_access_key,
            "AWS_EC2_METADATA_DISABLED": "true",
            "TMPDIR": str(self.temporary),
            FOLDER: str(self.folder),
            processes.MARK: self.mark,
        }

    def handled(self) -> list[Handling]:
        """What handlers have been given so far, in order."""
        return [Handling(*map(int, line.split())) for line in self._lines().splitlines()]

    def handled_count(self) -> int:
        """How many that are."""
        return self._lines().count(b"\n")

    def _lines(self) -> bytes:
        with suppress(FileNotFoundError):
            return (self.folder / "handled").read_bytes()
        return b""

    def processes(self) -> dict[int, str]:
        """Whatever is still running of what was started here."""
        return processes.marked(self.mark)

    async def send(self, count: int) -> list[str]:
        """Put so many orders into the queue, and return their ids."""
        ids: list[str] = []
        sender = App(self.gateway)
        sender.subscribe(SUBSCRIPTION)
        async with sender:
            for start in range(0, count, 1000):
                numbers = range(start, min(start + 1000, count))
                ids += await sender.post_all([Order(number) for number in numbers])
        return ids

    async def in_queue(self, queue: str) -> list[Message]:
        """The messages in a queue."""
        looking = App(self.gateway)
        async with looking, browse(looking.gateway, queue) as batches:
            return [seen.message async for batch in batches for seen in batch]


class Run:
    """One `pump spark run` of the shop; killed when it is left alive."""

    def __init__(self, shop: Shop, *arguments: str) -> None:
        command = [sys.executable, "-m", "pump", "spark", "run", f"{shop_module.__name__}:app"]
        for side in ("driver", "executor"):
            command += ["--conf", f"spark.{side}.extraJavaOptions={QUICK_JAVA}"]
        self._log = shop.folder / f"run-{secrets.token_hex(4)}.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--gateway", shop.gateway, "--ledger", str(shop.ledger), *arguments],
                cwd=ROOT,
                env=shop.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def children(self) -> list[int]:
        """The processes that it has started itself."""
        pid = self.process.pid
        listed = Path(f"/proc/{pid}/task").glob("*/children")
        return [int(child) for each in listed for child in each.read_text().split()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.process.kill()
        self.process.wait()
