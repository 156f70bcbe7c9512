"""moto's server as a child process: a second S3 that honours conditions, in an environment of its
own (`make .venv-moto/.ready`).
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
PYTHON = _ROOT / ".venv-moto" / "bin" / "python"
_LAUNCHER = _ROOT / "benchmarks" / "servers" / "launch_moto.py"
_STOP_TIMEOUT_S = 10.0


class MotoMissing(Exception):
    """Its environment is not installed; the message says how."""


@contextmanager
def moto_server() -> Iterator[str]:
    """The URL of a server that lives as long as the block."""
    if not PYTHON.exists():
        raise MotoMissing(f"{PYTHON.relative_to(_ROOT)} is missing: run `make test-brokers`")
    with subprocess.Popen(
        [str(PYTHON), "-P", str(_LAUNCHER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            if not url:
                raise MotoMissing("moto ended before it said where it listens")
            yield url
        finally:
            process.terminate()
            process.wait(_STOP_TIMEOUT_S)
