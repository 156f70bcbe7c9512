"""A standalone Spark cluster on loopback, from the package that pip installs."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pump.spark.session import java_here

from .processes import until
from .quick_java import QUICK_JAVA

_CLASSES = "org.apache.spark.deploy"
_LISTENING = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"
_STARTS_WITHIN_S = 60.0


class StandaloneCluster:
    """A master and workers of one core each; all of them end with the block."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        import pyspark

        self._folder = folder
        self._environment = {
            **environment,
            "SPARK_HOME": os.path.dirname(pyspark.__file__),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
        }
        self._started: list[subprocess.Popen[bytes]] = []

    async def start(self, workers: int) -> str:
        """Return the master's address when all workers have registered there."""
        await asyncio.to_thread(self._choose_java)
        self._run("master", "master.Master", "--port", "0")
        await self._until_said("master", _LISTENING)
        address = self._said("master", _LISTENING)
        assert address is not None
        names = [f"worker-{number}" for number in range(workers)]
        for name in names:
            options = ("--cores", "1", "--memory", "1g", "--work-dir", str(self._folder / name))
            self._run(name, "worker.Worker", *options, address)
        for name in names:
            await self._until_said(name, re.compile(f"({_REGISTERED})"))
        return address

    def stop(self) -> None:
        """End what was started: SIGTERM first, workers before the master."""
        for process in reversed(self._started):
            process.terminate()
        for process in reversed(self._started):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _choose_java(self) -> None:
        home = java_here().home_for_spark(self._folder / "java")
        self._environment.pop("JAVA_HOME", None)
        if home is not None:
            self._environment["JAVA_HOME"] = str(home)

    def _run(self, name: str, cls: str, *arguments: str) -> None:
        spark_class = os.path.join(self._environment["SPARK_HOME"], "bin", "spark-class")
        place = ("--host", "127.0.0.1", "--webui-port", "0")
        with self._log(name).open("wb") as log:
            process = subprocess.Popen(
                [spark_class, f"{_CLASSES}.{cls}", *place, *arguments],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._started.append(process)

    async def _until_said(self, name: str, what: re.Pattern[str]) -> None:
        process = self._started[-1]
        await until(
            lambda: self._said(name, what) is not None or process.poll() is not None,
            within_s=_STARTS_WITHIN_S,
            what=f"{what.pattern} in {self._log(name)}",
        )
        assert self._said(name, what) is not None, self._log(name).read_text()

    def _said(self, name: str, what: re.Pattern[str]) -> str | None:
        match = what.search(self._log(name).read_text(errors="replace"))
        return match[1] if match else None

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"


@contextmanager
def standalone_cluster(folder: Path, environment: Mapping[str, str]) -> Iterator[StandaloneCluster]:
    """A cluster to be started, which is gone at the end."""
    folder.mkdir()
    cluster = StandaloneCluster(folder, environment)
    with ExitStack() as ended:
        ended.callback(cluster.stop)
        yield cluster
