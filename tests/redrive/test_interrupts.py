"""Ctrl-C and `kill -9` on the real command."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from pathlib import Path

import pytest

from gateways.sqs import SqsGateway, TransportKind
from pump import App, MakeChannels
from pump.message import Message
from pump.outcome import ACK, Settlement
from pump.subscription import QueueSpec, Subscription
from tests.brokers.aws_account import AwsAccount
from tests.contract.sqs_rigs import sqs_settings

from .programs import Program
from .rig import DEAD, TARGET, a_dead_letter

COUNT = 600
LETTERS = [a_dead_letter(n, type="Order" if n % 3 else "Payment") for n in range(COUNT)]
ORDERS = sorted(letter.id for letter in LETTERS if letter.type == "Order")
OTHERS = sorted(letter.id for letter in LETTERS if letter.type != "Order")


async def fill(app: App, target: str) -> None:
    for queue in (DEAD, target):
        await app.admin.ensure(QueueSpec(name=queue), MakeChannels.CREATE)
    await app.post_all(LETTERS, queue=DEAD)


async def taken(app: App, queue: str) -> list[str]:
    """The ids of everything in a queue, which is empty then.

    What a process that was killed held comes when its leases end.
    """
    port = app.gateway.consumer(Subscription(queue=queue, request=Message))
    found: list[str] = []
    while (stats := await app.admin.stats(queue)).visible + stats.in_flight:
        deliveries = await port.receive(max_count=10, wait_s=1)
        found += [each.message.id for each in deliveries]
        if deliveries:
            await port.settle([Settlement(each, ACK) for each in deliveries])
    await port.aclose()
    return sorted(found)


# Two processes, each with DuckDB and Arrow: 13 s on a machine with five times its work.
@pytest.mark.timeout(120)
def test_when_it_is_interrupted_then_it_hands_back_what_it_held_and_can_go_on(
    tmp_path: Path,
) -> None:
    """R78: Ctrl-C ends it between two batches, and it says how to go on."""

    async def prepared() -> None:
        async with App(f"local://{tmp_path}/queues") as app:
            await fill(app, TARGET)

    async def looked() -> tuple[list[str], list[str]]:
        async with App(f"local://{tmp_path}/queues") as app:
            return await taken(app, TARGET), await taken(app, DEAD)

    asyncio.run(prepared())
    arguments = (DEAD, "--to", TARGET, "--where", "type = 'Order'", "-g", "local://queues")
    program = Program(tmp_path, arguments).start("--rate", "20")
    program.wait_for_batches(1)

    program.process.send_signal(signal.SIGINT)
    code, out, err = program.end()

    assert code == 130, err
    assert "the same command goes on where this one ended" in err
    code, out, err = program.start().end()
    assert code == 0, err
    assert "going on with an interrupted run" in out
    assert asyncio.run(looked()) == (ORDERS, OTHERS)


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("target", ["orders.fifo", "orders"])
async def test_when_it_is_killed_and_run_again_then_each_message_is_there(
    tmp_path: Path, local_aws: AwsAccount, target: str
) -> None:
    """R78: on a FIFO target each exactly once; on a standard one a batch may be there twice."""
    account = local_aws
    gateway = SqsGateway(sqs_settings(account, TransportKind.AIOBOTO3))
    async with App(gateway) as app:
        await fill(app, target)
        url = f"sqs://{account.region}?endpoint={account.endpoint_url}"
        program = Program(
            tmp_path,
            (DEAD, "--to", target, "--where", "type = 'Order'", "-g", url),
            {
                "AWS_ACCESS_KEY_ID": account.access_key_id,
                "AWS_SECRET_ACCESS_KEY": account.secret_access_key,
            },
        )
        await asyncio.to_thread(program.start, "--rate", "100")
        await asyncio.to_thread(program.wait_for_batches, 2)
        await asyncio.to_thread(program.kill)

        await asyncio.to_thread(program.start)
        code, out, err = await asyncio.to_thread(program.end)

        assert code == 0, err
        assert "going on with an interrupted run" in out
        moved = Counter(await taken(app, target))
        repeats = moved.total() - len(moved)
        assert sorted(moved) == ORDERS
        assert repeats <= (0 if target.endswith(".fifo") else 100)
        assert await taken(app, DEAD) == OTHERS
