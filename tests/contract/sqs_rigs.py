"""How the contract suite meets the SQS gateway, whatever server it is pointed at."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import attrs
import pytest

from gateways.sqs import AwsSettings, Credentials, SqsGateway, SqsSettings, TransportKind
from gateways.sqs.settling import Settling
from pump.outcome import Refusal
from pump.testing.contract import GatewayContract, PumpContract, Rig, WaitingClock
from pump.testing.contract.receiving import ReceivingContract
from pump.testing.contract.sending import SendingContract
from pump.testing.contract.settling import SettlingContract
from tests.brokers.aws_account import AwsAccount
from tests.brokers.patience import PATIENCE


@attrs.frozen(kw_only=True)
class Pace:
    """How fast a server is: what a rig's time is made of."""

    poll_s: float
    wait_s: float
    slack_s: float


# It looks for messages whose time has come once a second.
LOCALSTACK = Pace(poll_s=1.0, wait_s=2.0, slack_s=2.0 * PATIENCE)
# It wakes when the time has come, so no receive waits for what is there.
PUMP_LOCAL = Pace(poll_s=0.0, wait_s=1.0, slack_s=0.3 * PATIENCE)


def sqs_settings(aws: AwsAccount, transport: TransportKind, **fields: object) -> SqsSettings:
    """Settings for the test's own account."""
    return SqsSettings(
        aws=AwsSettings(
            region=aws.region,
            endpoint_url=aws.endpoint_url,
            credentials=Credentials(
                access_key_id=aws.access_key_id, secret_access_key=aws.secret_access_key
            ),
            transport=transport,
            # The suite has hundreds of consumers poll at once, each over a connection of its own.
            # To build so many requests takes SDKs seconds on a busy machine; connecting waits.
            max_connections=400,
            connect_timeout_s=60.0,
        ),
        **fields,  # type: ignore[arg-type]
    )


async def open_rig(aws: AwsAccount, transport: TransportKind, pace: Pace, **facts: Any) -> Rig:
    """A rig whose time is real: SQS counts in seconds."""
    clock = WaitingClock()
    settings = sqs_settings(aws, transport)

    async def open_gateway() -> SqsGateway:
        gateway = SqsGateway(settings, clock)
        await gateway.open()
        return gateway

    return Rig(
        gateway=await open_gateway(),
        clock=clock,
        tick_s=1.0 * PATIENCE,
        redrives_on_receive=True,
        open_again=open_gateway,
        in_another_process=partial(SqsGateway, settings),
        **attrs.asdict(pace),
        **facts,
    )


def count_settle_requests(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many batches went to the server since."""
    perform, requests = Settling._perform, list[str]()

    async def counting(self: Settling, batch: Any) -> Sequence[Refusal]:
        requests.append(batch.operation)
        return await perform(self, batch)

    monkeypatch.setattr(Settling, "_perform", counting)
    return lambda: len(requests)


class OnSqs:
    """Standard queues; those that need order are FIFO."""

    transport: ClassVar[TransportKind]
    pace: ClassVar[Pace]

    @pytest.fixture
    async def rig(self, account: AwsAccount, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
        rig = await open_rig(
            account,
            self.transport,
            self.pace,
            ordered_suffix=".fifo",
            settle_requests=count_settle_requests(monkeypatch),
        )
        yield rig
        await rig.aclose()


class OnStandardQueues(OnSqs, GatewayContract):
    """All of the contract."""


class OverTheTransport(OnSqs, SendingContract, ReceivingContract, SettlingContract):
    """What has most to do with the transport: each transport keeps all of it on one server, and
    each server keeps all of it through one transport.
    """


class OnFifoQueues(PumpContract):
    """The pump's laws and rejection, with every queue FIFO, the dead-letter queues too."""

    transport: ClassVar[TransportKind]
    pace: ClassVar[Pace]

    @pytest.fixture
    async def rig(self, account: AwsAccount) -> AsyncIterator[Rig]:
        rig = await open_rig(
            account, self.transport, self.pace, suffix=".fifo", has_groups_of_one=True
        )
        yield rig
        await rig.aclose()
