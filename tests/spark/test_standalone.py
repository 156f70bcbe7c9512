"""`pump spark run` on a standalone master with two workers, as on a cluster of machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.brokers.aws_account import AwsAccount
from tests.brokers.pump_local import PumpLocal

from .cluster import Run, Shop
from .processes import ancestors, command_line, until
from .standalone import standalone_cluster

pytestmark = pytest.mark.spark
ORDERS = 2_000
# No job begins before both workers have given it their core.
WITH_BOTH = (
    *("--conf", "spark.executor.memory=512m"),
    *("--conf", "spark.cores.max=2"),
    *("--conf", "spark.scheduler.minRegisteredResourcesRatio=1.0"),
    *("--conf", "spark.scheduler.maxRegisteredResourcesWaitingTime=120s"),
)


async def test_when_a_standalone_cluster_runs_an_app_then_both_workers_handle_messages(
    tmp_path: Path,
    no_aws_settings: None,
    own_pump_local: Callable[..., PumpLocal],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R78: the pump on a real cluster: every message once, and nothing left running."""
    shop = Shop(tmp_path, AwsAccount(endpoint_url=own_pump_local().url))
    shop.use_credentials(monkeypatch)
    await shop.send(ORDERS)

    executors: dict[int, int] = {}

    def note_executors() -> bool:
        for pid in {each.pid for each in shop.handled()} - executors.keys():
            for parent in ancestors(pid):
                if "CoarseGrainedExecutorBackend" in command_line(parent):
                    executors[pid] = parent
                    break
        return run.process.poll() is not None

    with standalone_cluster(tmp_path / "cluster", shop.environment) as cluster:
        master = await cluster.start(workers=2)
        # A task ends after half of them, so the other half is the other one's.
        options = ("--until-empty", "--master", master, "--slice-messages", str(ORDERS // 2))
        with Run(shop, *options, *WITH_BOTH) as run:
            await until(note_executors, within_s=120, what="the end of the run")
        assert run.process.returncode == 0, run.log

    assert Counter(each.number for each in shop.handled()) == Counter(range(ORDERS))
    assert len(set(executors.values())) == 2, executors
    assert await shop.in_queue("orders") == []
    await until(lambda: not shop.processes(), within_s=30, what=f"the end of {shop.processes()}")
    assert list(shop.temporary.iterdir()) == []
