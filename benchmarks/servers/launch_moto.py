"""Run moto's server on a free loopback port until standard input ends.

    .venv-moto/bin/python -P benchmarks/servers/launch_moto.py

Prints its address as one line. Only the standard library and moto are imported here: this is the
one file that moto's environment runs.
"""

from __future__ import annotations

import logging
import sys

from moto.server import ThreadedMotoServer


def main() -> None:
    """Serve, without a log line a request: that would be counted as moto's work."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    print("http://{}:{}".format(*server.get_host_and_port()), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
