"""Off: nothing is traced, nothing is loaded, nothing is left in the headers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry import trace

from pump.headers import TRACE_PARENT
from tests.core.rig import Rig

from .shop import Spans

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import asyncio, sys
from pump import App, Command, Subscription
{start}

class Work(Command):
    pass

app = App("memory://"{options})

@app.handler
async def handle(request: Work) -> None: ...

app.subscribe(Subscription(queue="work", request=Work, dead_letter_queue="dead"))

async def main():
    async with app, app.pumping() as dispatcher:
        await app.post(Work())
        await dispatcher.wait_until_empty()

asyncio.run(main())
print([name for name in sys.modules if name.startswith(("opentelemetry", "prometheus_client"))])
"""


@pytest.mark.parametrize(
    ("start", "options"),
    [
        ("", ""),
        ("from pump.observability.metrics import Metrics", ", telemetry=Metrics(port=0)"),
    ],
    ids=["off", "metrics alone"],
)
def test_when_nothing_is_traced_then_opentelemetry_is_not_loaded(
    start: str, options: str, tmp_path: Path
) -> None:
    """R59: no cost when off; and metrics for Prometheus need no package at all."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(start=start, options=options)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"


async def test_when_the_app_has_no_telemetry_then_it_makes_no_span_and_adds_no_header(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R59: even where the program itself traces."""
    spans = Spans()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: spans.provider)
    rig = Rig()
    with spans.provider.get_tracer("shop").start_as_current_span("the program"):
        async with rig:
            await rig.start()
            await rig.send(1)
            await rig.clock.settle()
            await rig.finish()

    assert [each.name for each in spans.all()] == ["the program"]
    assert rig.ended == [1]
    assert all(TRACE_PARENT not in message.headers for _, message in rig.record.sent)
