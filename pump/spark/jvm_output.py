"""What the JVM writes on standard error: noise is left out, the rest is passed on.

While Spark starts everything is held back: if it fails, one clear error says so, and not a page of
Java. Needs no PySpark.
"""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from threading import Lock, Thread

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

    def complaint(self) -> str:
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
