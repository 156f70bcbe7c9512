"""An ordinary pump in a process of its own: it opens its app, says so, and pumps from a line on.

python -m benchmarks.spark.pump_process ENDPOINT tick LEDGER
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from pump import event_loop

from .app import make_app


async def main(endpoint: str, work: str, ledger: str) -> None:
    """Pump from the first line on standard input to its end."""
    async with make_app(endpoint, work, Path(ledger)) as app:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        async with app.pumping():
            await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    event_loop.run(main(*sys.argv[1:]))
