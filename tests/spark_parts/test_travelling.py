"""How an app gets into a task: by name where that can be, by value elsewhere."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from pump import App, Command, ConfigurationError, Subscription
from pump.spark.run.plan import AppByName, AppByValue, check_same, packed, unpacked

PROGRAM = """
from pump import App, Command, Subscription

app = App("sqs://eu-west-1")

class Order(Command):
    n: int

@app.handler
async def handle(order: Order) -> None:
    handled.append((app, order.n))

handled = []
app.subscribe(Subscription(queue="orders", request=Order))
"""


@pytest.fixture
def module_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> App:
    """An app in a module of its own."""
    (tmp_path / "travelling_shop.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "travelling_shop", raising=False)
    return unpacked(AppByName(target="travelling_shop:app"))


def test_when_an_app_is_a_modules_name_then_it_travels_by_name(
    module_app: App, tmp_path: Path
) -> None:
    """R78: handlers of that module mean the app that runs."""
    app_reference = packed(module_app)

    assert isinstance(app_reference, AppByName)
    assert app_reference.target == "travelling_shop:app"
    assert str(tmp_path) in app_reference.folders
    assert unpacked(app_reference) is module_app


def test_when_a_folder_is_not_there_then_it_is_not_looked_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R78: the driver's folders need not exist on a worker's machine."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    unpacked(AppByName(target="tests.spark_parts.shop:app", folders=("/no/such/folder",)))

    assert "/no/such/folder" not in sys.path


@pytest.mark.spark
async def test_when_an_app_is_nobodys_name_then_it_travels_by_value_with_its_handlers() -> None:
    """R78: from a notebook, or a function; what its handlers call `app` is the copy that runs."""
    app = App("memory://")

    class Order(Command):
        n: int

    async def handle(order: Order) -> None:
        # Raises unless that app is the open one.
        opened.append(app.processor)

    opened: list[object] = []
    app.register(Order, handle)
    app.subscribe(Subscription(queue="orders", request=Order))

    app_reference = await asyncio.to_thread(packed, app)
    arrived = await asyncio.to_thread(unpacked, app_reference)

    assert isinstance(app_reference, AppByValue)
    assert arrived is not app
    async with arrived:
        await arrived.processor.send(Order(n=1))


def test_when_the_app_differs_from_the_drivers_then_the_task_refuses_it(module_app: App) -> None:
    """R78: another version on a machine must not handle other queues."""
    check_same(module_app, ["orders"])
    with pytest.raises(ConfigurationError, match="ship the same version"):
        check_same(module_app, ["orders", "returns"])
