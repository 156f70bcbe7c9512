"""Run moto's server on a free loopback port until standard input ends.

    .venv-moto/bin/python -P tests/brokers/launch_moto.py

Prints its address as one line. Each line of input is a number of seconds by which its clock is
moved on, and is answered with an empty line: replies are dated as if so much time had passed. Only
the standard library and moto are imported here: this file runs in moto's environment.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime

from moto.s3 import models
from moto.server import ThreadedMotoServer


class Ahead:
    """The machine's time, and what was skipped of it."""

    def __init__(self, machine_s: Callable[[], float]) -> None:
        self._machine_s = machine_s
        self.seconds = 0.0

    def __call__(self) -> float:
        return self._machine_s() + self.seconds


def main() -> None:
    """Serve, without a log line a request."""
    clock = Ahead(time.time)  # noqa: TID251
    # What dates a reply asks the module for it; objects are dated by a function of moto's.
    time.time = clock  # noqa: TID251
    models.utcnow = lambda: datetime.fromtimestamp(clock(), UTC).replace(tzinfo=None)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    print("http://{}:{}".format(*server.get_host_and_port()), flush=True)
    for line in sys.stdin:
        clock.seconds += float(line)
        print(flush=True)


if __name__ == "__main__":
    main()
