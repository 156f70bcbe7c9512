"""How the contract suite meets the SQS gateway, whatever server it is pointed at."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pytest

from gateways.sqs import AwsSettings, Credentials, SqsGateway, SqsSettings, TransportKind
from gateways.sqs.settling import SqsSettling
from pump.serving import ServerOptions
from pump.testing.contract import GatewayContract, PumpContract, Rig, WaitingClock
from pump.testing.contract.ordering import GroupContract
from pump.testing.contract.rejecting import RejectionContract
from pump.testing.contract.sending import ReceivingContract, SendingContract
from pump.testing.contract.settling import SettlingContract
from tests.brokers.aws_account import AwsAccount
from tests.brokers.virtual_sqs import NetworkClock

from .conftest import CountCalls


@attrs.frozen(kw_only=True)
class Pace:
    """How fast a server is: what a rig's time is made of."""

    poll_s: float
    wait_s: float
    slack_s: float


# It looks for messages whose time has come once a second.
LOCALSTACK = Pace(poll_s=1.0, wait_s=2.0, slack_s=2.0)


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
        tick_s=2.0,
        redrives_on_receive=True,
        open_again=open_gateway,
        in_another_process=partial(SqsGateway, settings),
        **attrs.asdict(pace),
        **facts,
    )


class OnSqs:
    """Standard queues; those that need order are FIFO."""

    transport: ClassVar[TransportKind]
    pace: ClassVar[Pace]

    @pytest.fixture
    async def rig(self, account: AwsAccount, count_calls: CountCalls) -> AsyncIterator[Rig]:
        rig = await open_rig(
            account,
            self.transport,
            self.pace,
            ordered_suffix=".fifo",
            settle_requests=count_calls(SqsSettling, "_ask"),
        )
        yield rig
        await rig.aclose()


class OnStandardQueues(OnSqs, GatewayContract):
    """All of the contract."""


class Smoke(OnSqs):
    """What differs by transport: how messages of every kind travel, in batches too, how refusals
    and errors are read, and what a rejection makes of them.
    """


for _test in (
    SendingContract.test_when_messages_are_sent_then_each_gets_an_id_of_its_own,
    SendingContract.test_when_a_message_is_sent_then_every_field_arrives_exactly,
    SendingContract.test_when_a_body_is_sent_then_its_bytes_arrive_exactly,
    SendingContract.test_when_headers_hold_any_text_then_they_arrive_exactly,
    SendingContract.test_when_more_is_sent_than_one_request_holds_then_all_arrive,
    SendingContract.test_when_a_body_is_too_large_then_the_send_says_so_and_sends_nothing_else,
    SendingContract.test_when_the_queue_does_not_exist_then_send_names_it_and_makes_none,
    ReceivingContract.test_when_the_queue_does_not_exist_then_receive_names_it_and_makes_none,
    ReceivingContract.test_when_a_message_is_sent_then_a_waiting_receive_returns_it_at_once,
    ReceivingContract.test_when_a_receive_is_cancelled_as_a_message_arrives_then_nothing_is_hidden,
    SettlingContract.test_when_one_receipt_of_a_batch_is_stale_then_the_others_are_applied,
    SettlingContract.test_when_more_is_settled_than_one_request_holds_then_all_is_applied,
    SettlingContract.test_when_deferred_without_a_delay_then_visible_at_once_as_the_next_attempt,
    GroupContract.test_when_messages_share_a_group_then_they_are_delivered_in_order,
    RejectionContract.test_when_a_handler_rejects_then_the_copy_is_routed_with_its_reason,
    RejectionContract.test_when_a_foreign_producer_sends_plain_json_then_it_is_understood,
):
    setattr(Smoke, _test.__name__, _test)


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


class InVirtualTime:
    """A server of the test's own in virtual time, through one transport."""

    transport: ClassVar[TransportKind]
    is_on_disk: ClassVar[bool] = False

    @pytest.fixture
    async def clock(self) -> NetworkClock:
        return NetworkClock()

    @pytest.fixture
    async def settings(
        self, clock: NetworkClock, tmp_path: Path, no_aws_settings: None
    ) -> AsyncIterator[SqsSettings]:
        data = tmp_path / "data" if self.is_on_disk else None
        async with clock.serving(ServerOptions(port=0, data=data)) as server:
            yield sqs_settings(AwsAccount(endpoint_url=server.endpoint), self.transport)


async def open_virtual_rig(settings: SqsSettings, clock: NetworkClock, **facts: Any) -> Rig:
    """A rig whose time the tests move."""

    async def open_gateway() -> SqsGateway:
        gateway = clock.gateway(settings)
        await gateway.open()
        return gateway

    return Rig(
        gateway=await open_gateway(),
        clock=clock,
        redrives_on_receive=True,
        open_again=open_gateway,
        in_another_process=partial(SqsGateway, settings),
        **facts,
    )


class StandardInVirtualTime(InVirtualTime, GatewayContract):
    """All of the contract on standard queues; those that need order are FIFO."""

    @pytest.fixture
    async def rig(
        self, settings: SqsSettings, clock: NetworkClock, count_calls: CountCalls
    ) -> AsyncIterator[Rig]:
        rig = await open_virtual_rig(
            settings,
            clock,
            ordered_suffix=".fifo",
            settle_requests=count_calls(SqsSettling, "_ask"),
        )
        yield rig
        await rig.aclose()


class FifoInVirtualTime(InVirtualTime, PumpContract):
    """The pump's laws and rejection, with every queue FIFO, the dead-letter queues too."""

    @pytest.fixture
    async def rig(self, settings: SqsSettings, clock: NetworkClock) -> AsyncIterator[Rig]:
        rig = await open_virtual_rig(settings, clock, suffix=".fifo", has_groups_of_one=True)
        yield rig
        await rig.aclose()
