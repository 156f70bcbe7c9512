"""Become a `pump local` that ends with whoever started it, killed or not.

.venv/bin/python tests/brokers/launch_pump_local.py --port 0 --data FOLDER
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Replace this process by the command; where the system can, tie its life to the parent's."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.execv(sys.executable, [sys.executable, "-P", "-m", "pump", "local", *sys.argv[1:]])


if __name__ == "__main__":
    main()
