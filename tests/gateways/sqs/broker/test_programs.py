"""`pump` on `sqs://`, as a process with credentials from its environment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlencode

import attrs
import pytest

from tests.cli.programs import pump, running

from .bench import Bench
from .plain_sqs import headers_of, packed

pytestmark = pytest.mark.broker
SECRET = "wJalrXUtnFEMI-not-to-be-seen"
APP = """
import os
from datetime import timedelta

from pump import App, Command, RejectMessage, Subscription

app = App(os.environ["SHOP_GATEWAY"])


class PlaceOrder(Command):
    order_id: str


@app.handler
async def place(order: PlaceOrder) -> None:
    if order.order_id == "bad":
        raise RejectMessage("no stock")
    print(f"placed {order.order_id}", flush=True)


app.subscribe(
    Subscription(
        queue=os.environ.get("SHOP_QUEUE", "orders"),
        request=PlaceOrder,
        dead_letter_queue="orders-dead",
        wait=timedelta(seconds=2),
    )
)
"""


@attrs.frozen
class Folder:
    """Where the app of a test lies, and how programs reach its account."""

    path: Path
    bench: Bench

    @property
    def url(self) -> str:
        aws = self.bench.aws
        query = {"transport": self.bench.transport.value, "endpoint": aws.endpoint_url}
        return f"sqs://{aws.region}?{urlencode(query)}"

    @property
    def env(self) -> Mapping[str, str]:
        return {
            "SHOP_GATEWAY": self.url,
            "AWS_ACCESS_KEY_ID": self.bench.aws.access_key_id,
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }

    def pump(self, *arguments: str, **env: str) -> str:
        """Run a command to its end, and return what it said."""
        done = pump(*arguments, folder=self.path, env={**self.env, **env})
        assert done.returncode == 0, done.stderr
        assert SECRET not in done.stdout + done.stderr
        return done.stdout

    def send(self, order_id: str) -> str:
        body = json.dumps({"order_id": order_id})
        return self.pump("send", "orders", body, "--app", "shop:app").strip()


@pytest.fixture
def folder(bench: Bench, tmp_path: Path) -> Folder:
    (tmp_path / "shop.py").write_text(APP)
    return Folder(tmp_path, bench)


async def test_when_an_app_runs_until_empty_then_orders_are_placed_and_bad_ones_dead_lettered(
    folder: Folder,
) -> None:
    """R55, R57: `pump send`, `pump run`, `pump queues`; the secret is nowhere to be seen."""
    folder.send("1")
    bad_id = folder.send("bad")

    said = folder.pump("run", "shop:app", "--until-empty", "--log-format", "json")
    listed = json.loads(folder.pump("queues", "--app", "shop:app", "--json"))

    assert "placed 1" in said
    assert {each["name"]: each["visible"] for each in listed} == {"orders": 0, "orders-dead": 1}
    [copy] = await folder.bench.plain.take("orders-dead")
    assert packed(copy)["id"] == bad_id
    assert headers_of(copy)["rejectionMessage"] == "no stock"


async def test_when_the_queue_is_named_by_url_or_arn_then_until_empty_still_waits_for_it(
    folder: Folder,
) -> None:
    """What is not known to be empty is not."""
    arn = await folder.bench.plain.make("orders")
    url = await folder.bench.plain.url("orders")

    for address in (url, arn):
        folder.send(address[:3])
        said = folder.pump("run", "shop:app", "--until-empty", SHOP_QUEUE=address)
        assert f"placed {address[:3]}" in said


def test_when_an_app_is_measured_then_its_requests_are_counted_and_no_queue_is_left(
    folder: Folder,
) -> None:
    report = json.loads(folder.pump("bench", "shop:app", "--messages", "30", "--yes", "--json"))

    assert report["measured"]["handled"] == 30
    assert report["measured"]["requests"]["receive_message"] >= 3
    assert report["left"] == []
    assert json.loads(folder.pump("queues", "--app", "shop:app", "--json")) == []


def test_when_it_is_terminated_then_it_drains_and_ends_with_zero(folder: Folder) -> None:
    """Law 5."""
    folder.send("1")
    with running("run", "shop:app", folder=folder.path, env=folder.env) as program:
        program.out.wait_for("placed 1")
        program.signal()
        exit_code = program.wait()
        said = "\n".join([*program.out.rest(), *program.err.rest()])

    assert exit_code == 0
    assert SECRET not in said


def test_when_the_doctor_looks_then_it_finds_the_queues_or_says_what_is_missing(
    folder: Folder,
) -> None:
    """R56, R57."""
    before = folder.pump("doctor", "shop:app")
    folder.send("1")
    after = folder.pump("doctor", "shop:app")

    assert "0 error(s)" in before
    assert "0 error(s)" in after
    assert "orders-dead" in after


def test_when_credentials_are_missing_then_it_says_so_at_once_and_how_to_give_them(
    folder: Folder,
) -> None:
    """R56."""
    env = {**folder.env, "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    done = pump("send", "orders", "{}", "--app", "shop:app", folder=folder.path, env=env)

    assert done.returncode == 3
    assert "AWS_ACCESS_KEY_ID" in done.stderr
    assert "Traceback" not in done.stderr


def test_when_nobody_listens_at_the_endpoint_then_send_says_which_broker_it_cannot_reach(
    folder: Folder,
) -> None:
    """R51: exit code 4, no traceback."""
    url = f"sqs://eu-west-1?endpoint=http://127.0.0.1:9&transport={folder.bench.transport.value}"
    done = pump("send", "orders", "{}", "--gateway", url, folder=folder.path, env=folder.env)

    assert done.returncode == 4
    assert "cannot reach orders" in done.stderr
    assert "Traceback" not in done.stderr
