"""A spill that would go with its container takes no message: the original is kept (T1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
from structlog.testing import capture_logs

from gateways.memory import MemoryGateway
from pump import App, Command, Message
from pump.capabilities import Capabilities
from pump.errors import StorageFailed
from pump.outcome import Ack, Defer, Fate, RejectionReason
from pump.stores import spill
from pump.stores.spill import (
    PerishableSpill,
    SpilledMessage,
    SqliteSpill,
    danger_of,
    perishing,
)
from pump.subscription import MakeChannels, QueueSpec
from pump.testing import a_delivery, a_subscription

MOUNTS = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
30 1 0:33 / / rw,relatime master:1 - overlay overlay rw,lowerdir=/l,upperdir=/u
31 30 0:40 / /tmp rw,nosuid - tmpfs tmpfs rw,size=64k
32 30 254:1 /var/lib/docker/volumes/shop/_data /var/lib/shop rw - ext4 /dev/vda1 rw
33 30 254:1 /pods/7/volumes/kubernetes.io~empty-dir/cache /cache rw - ext4 /dev/vda1 rw
34 30 254:1 /etc /config ro,relatime - ext4 /dev/vda1 rw
35 30 254:1 /data /with\040space rw,relatime - xfs /dev/vdb rw
36 31 254:1 /inner /tmp/inner rw - ext4 /dev/vda1 rw
nonsense
"""


@pytest.mark.parametrize(
    ("path", "danger"),
    [
        ("/app/.pumphouse/spill.db", "overlay, a file system that goes with its container"),
        ("/tmp/spill.db", "tmpfs, a file system in memory"),
        ("/tmp/inner/spill.db", None),
        ("/tmpfs-not/spill.db", "overlay, a file system that goes with its container"),
        ("/var/lib/shop/spill.db", None),
        ("/cache/spill.db", "an emptyDir volume, which goes with its pod"),
        ("/config/spill.db", "a read-only file system"),
        ("/with space/spill.db", None),
    ],
)
def test_when_a_place_is_looked_at_then_its_file_system_says_what_becomes_of_it(
    path: str, danger: str | None
) -> None:
    """T1."""
    assert danger_of(MOUNTS, path) == danger


def test_when_the_later_of_two_mounts_hides_the_other_then_it_counts() -> None:
    table = "1 0 8:1 / / rw - ext4 /dev/sda rw\n2 1 0:9 / / rw - overlay overlay rw"

    assert danger_of(table, "/spill.db") == "overlay, a file system that goes with its container"
    assert danger_of("", "/spill.db") is None


def test_when_the_system_has_no_table_of_mounts_then_nothing_is_feared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "_MOUNTS", tmp_path / "missing")

    assert perishing(tmp_path) is None


class Lasting(MemoryGateway):
    """Queues that outlive the process, or say so."""

    @property
    def capabilities(self) -> Capabilities:
        return attrs.evolve(super().capabilities, is_durable=True)


def in_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("1 0 0:9 / / rw - overlay overlay rw")
    monkeypatch.setattr(spill, "_MOUNTS", mounts)
    monkeypatch.chdir(tmp_path)


def an_app(**options: Any) -> App:
    app = App(Lasting(), **options)
    app.subscribe(a_subscription("orders", request=Order, dead_letter_queue="orders-dead"))
    return app


class Order(Command):
    """It has no handler here."""


async def test_when_the_default_spill_would_go_with_the_container_then_it_warns_and_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T1: the original is deleted on the strength of a copy that would be gone."""
    in_a_container(tmp_path, monkeypatch)
    app = an_app()

    with capture_logs() as logged:
        async with app:
            router = app._open_runtime().router(app.subscriptions[0])
            # The queue was not made: its send fails.
            routed = await router.route(a_delivery(), RejectionReason.DELIVERY_ERROR, "no use")

    assert isinstance(routed.action, Defer)
    [warned] = [each for each in logged if each["event"] == "spill.perishable"]
    assert "overlay, a file system that goes with its container" in warned["detail"]
    assert "App(spill=…)" in warned["remedy"]
    assert not (tmp_path / ".pumphouse").exists()


async def test_when_a_consumer_by_hand_would_spill_into_the_container_then_it_warns_and_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T1: the app itself subscribes to nothing."""
    in_a_container(tmp_path, monkeypatch)
    app = App(Lasting())
    subscription = a_subscription(
        "orders", request=Order, dead_letter_queue="missing", make_channels=MakeChannels.ASSUME
    )

    with capture_logs() as logged:
        async with app:
            await app.admin.ensure(QueueSpec(name="orders"), MakeChannels.CREATE)
            assert "spill.perishable" not in {each["event"] for each in logged}
            async with app.consumer(subscription) as consumer, app.consumer(subscription):
                await app.post(Message(body=b"{}"), queue="orders")
                [delivery] = await consumer.receive()
                routed = await consumer.reject(delivery)

    assert routed.fate is Fate.KEPT
    assert len([each for each in logged if each["event"] == "spill.perishable"]) == 1
    assert not (tmp_path / ".pumphouse").exists()


async def test_when_the_place_was_chosen_then_it_is_used_whatever_it_lies_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T1."""
    in_a_container(tmp_path, monkeypatch)
    app = an_app(spill=tmp_path / "spill.db")

    with capture_logs() as logged:
        async with app:
            router = app._open_runtime().router(app.subscriptions[0])
            routed = await router.route(a_delivery(), RejectionReason.DELIVERY_ERROR, "no use")

    assert isinstance(routed.action, Ack)
    assert "spill.perishable" not in {each["event"] for each in logged}


async def test_when_the_disk_lasts_then_the_default_spill_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_a_container(tmp_path, monkeypatch)
    (tmp_path / "mounts").write_text("1 0 8:1 / / rw - ext4 /dev/sda rw")
    app = an_app()

    async with app:
        router = app._open_runtime().router(app.subscriptions[0])
        routed = await router.route(a_delivery(), RejectionReason.DELIVERY_ERROR, "no use")

    assert isinstance(routed.action, Ack)


async def test_when_a_perishable_spill_holds_messages_then_they_are_still_sent_on(
    tmp_path: Path,
) -> None:
    before = SqliteSpill(tmp_path / "spill.db")
    await before.put(
        SpilledMessage(message=Message(body=b"{}"), destination="dead", spilled_at_s=1.0)
    )

    store = PerishableSpill(tmp_path / "spill.db", "overlay")

    assert await store.count() == 1
    assert len(await store.claim(now_s=5.0, lease_s=10.0, most=5)) == 1
    with pytest.raises(StorageFailed, match="lies on overlay"):
        await store.put(
            SpilledMessage(message=Message(body=b"{}"), destination="dead", spilled_at_s=2.0)
        )
