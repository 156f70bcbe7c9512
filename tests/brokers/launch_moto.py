"""Run moto's S3 on a free loopback port until standard input ends.

    .venv-moto/bin/python -P tests/brokers/launch_moto.py

Prints its address as one line. Each line of input is a number of seconds by which its clock is
moved on, and is answered with an empty line: replies are dated as if so much time had passed. Only
the standard library and moto are imported here: this file runs in moto's environment.
"""

from __future__ import annotations

import io
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
from moto.s3 import models
from werkzeug.serving import make_server


class Ahead:
    """The machine's time, and what was skipped of it."""

    def __init__(self, machine_s: Callable[[], float]) -> None:
        self._machine_s = machine_s
        self.seconds = 0.0

    def __call__(self) -> float:
        return self._machine_s() + self.seconds


class OneAtATime:
    """An application that deals with one request after the other.

    moto looks whether a condition holds and writes afterwards: two of its threads may both find
    that they are the first. A body is awaited before, so that a slow client holds up no other.
    """

    def __init__(self, application: Callable[..., Iterable[bytes]]) -> None:
        self._application = application
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        is_chunked = environ.get("wsgi.input_terminated", False)
        length = -1 if is_chunked else int(environ.get("CONTENT_LENGTH") or 0)
        environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(length))
        with self._lock:
            return list(self._application(environ, start_response))


def main() -> None:
    """Serve, without a log line a request."""
    clock = Ahead(time.time)  # noqa: TID251
    # What dates a reply asks the module for it; objects are dated by a function of moto's.
    time.time = clock  # noqa: TID251
    models.utcnow = lambda: datetime.fromtimestamp(clock(), UTC).replace(tzinfo=None)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    # Of one service: moto's own server looks through the folders of all of them at each request.
    application = OneAtATime(create_backend_app("s3"))
    server = make_server(
        "127.0.0.1", 0, application, threaded=True, request_handler=MotoRequestHandler
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("http://{}:{}".format(*server.server_address[:2]), flush=True)
    for line in sys.stdin:
        clock.seconds += float(line)
        print(flush=True)


if __name__ == "__main__":
    main()
