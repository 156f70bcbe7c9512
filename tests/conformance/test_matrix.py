"""The matrix of docs/conformance.md says what happens (R76)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import attrs
import pytest

from gateways.s3 import S3Gateway
from pump import Message, Subscription
from pump.capabilities import Capabilities
from pump.errors import ConfigurationError, UnsupportedOperation
from pump.loop.reporting import PumpStats, Reporter
from pump.ports import Gateway, SessionGateway
from pump.runtime import check_support
from pump.services import Services
from pump.session import Sessions
from pump.subscription import MakeChannels, QueueSpec
from pump.testing.contract import __file__ as contract

from .gateways import EVERY_GATEWAY
from .operations import OPERATIONS, ROWS, Operation
from .page import PACE


def subscription(**fields: object) -> Subscription:
    return Subscription(queue="orders", request=dict, dead_letter_queue="orders-dead", **fields)  # type: ignore[arg-type]


async def open_with(gateway: Gateway, **fields: object) -> None:
    """What opening a subscription begins with."""
    check_support(subscription(**fields), gateway)


async def accept(gateway: Gateway, session: str | None) -> None:
    if isinstance(gateway, S3Gateway):
        await gateway.open()
        await gateway.admin().ensure(QueueSpec(name="orders"), MakeChannels.CREATE)
    if session is not None and isinstance(gateway, SessionGateway):
        await gateway.accept_session(subscription(), session, wait_s=0.0)
    services = Services()
    reporter = Reporter(subscription(), PumpStats(), None, services=services)
    sessions = Sessions(gateway, subscription(), None, reporter=reporter, services=services)  # type: ignore[arg-type]
    await sessions.accept(session, 0.0)


ASK: dict[str, Callable[[Gateway], Awaitable[object]]] = {
    "ordering_modes": lambda gateway: open_with(gateway, ordering="lifo"),
    "has_strict_order": lambda gateway: open_with(gateway, ordering_guarantee=True),
    "has_native_redrive": lambda gateway: open_with(gateway, max_receive_count=3),
    "has_sessions": lambda gateway: accept(gateway, None),
    "has_session_choice": lambda gateway: accept(gateway, "ada"),
    "has_peek": lambda gateway: gateway.admin().peek("orders"),
    "has_purge": lambda gateway: gateway.admin().purge("orders"),
}
REFUSED = [
    pytest.param(operation, gateway, id=f"{name}-{operation.field}")
    for name, gateway in EVERY_GATEWAY.items()
    for operation in OPERATIONS
    if not isinstance(operation.otherwise, str)
    and not operation.is_offered_by(gateway.capabilities)
]
DELAYS = [
    pytest.param(gateway, limit, id=name)
    for name, gateway in EVERY_GATEWAY.items()
    if (limit := gateway.capabilities.max_delay_s) is not None
]


@pytest.mark.parametrize(("operation", "gateway"), REFUSED)
async def test_when_an_operation_is_not_to_be_had_then_the_error_says_what_and_why(
    operation: Operation, gateway: Gateway
) -> None:
    """R76, without asking a server: none is there."""
    assert not isinstance(operation.otherwise, str)

    with pytest.raises(operation.otherwise) as raised:
        await ASK[operation.field](gateway)

    error = raised.value
    if isinstance(error, UnsupportedOperation):
        assert error.gateway == gateway.capabilities.gateway
        assert error.operation
        assert error.why
    else:
        assert isinstance(error, ConfigurationError)
        assert error.remedy


@pytest.mark.parametrize(("gateway", "limit"), DELAYS)
async def test_when_a_delay_is_longer_than_the_provider_keeps_then_the_error_says_so(
    gateway: Gateway, limit: float
) -> None:
    """R76."""
    with pytest.raises(UnsupportedOperation, match="delay"):
        await gateway.producer("orders").send([Message(body=b"{}")], delay_s=limit + 1)


def test_every_capability_is_in_a_table() -> None:
    shown = {row.field for row in ROWS} | {*PACE, "gateway", "emulated"}

    assert shown == {field.name for field in attrs.fields(Capabilities)}


def test_every_operation_that_a_gateway_may_lack_is_tested_where_it_has_it() -> None:
    """The contract suite leaves tests out by capability; what it never names is never tried."""
    suite = "".join(path.read_text() for path in Path(contract).parent.glob("*.py"))

    untried = [each.field for each in OPERATIONS if f'"{each.field}"' not in suite]

    assert [field for field in untried if field != "ordering_modes"] == []
    assert "OrderingMode.LIFO" in suite


def test_when_something_is_said_to_be_emulated_that_is_no_capability_then_it_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="has_teleport"):
        Capabilities(gateway="x", emulated={"has_teleport"})
