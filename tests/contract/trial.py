"""A trial: the contract suite, run on one gateway without pytest's ceremony.

Some hundred saboteurs times some hundred and forty tests want a runner that adds little.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator

import pytest

from pump.ports import Gateway
from pump.testing import VirtualClock
from pump.testing.contract import Network, PortContract, Rig

from .naive_network import NaiveNetwork
from .saboteurs import Saboteur

HANG_S = 3.0
"""Real seconds after which a test counts as hanging, and so as failed."""

ContractTest = Callable[..., Awaitable[None]]

CONTRACT: dict[str, ContractTest] = {
    name: test
    for name, test in inspect.getmembers(PortContract, inspect.isfunction)
    if name.startswith("test_")
}
"""Every test of the suite, by name."""


def failures(saboteur: type[Saboteur], names: Iterable[str]) -> set[str]:
    """Which of these tests find the saboteur out."""
    return {name for name in names if not passes(saboteur, CONTRACT[name])}


def passes(saboteur: type[Saboteur], test: ContractTest) -> bool:
    """Whether a test passes, or is skipped, with all its parameters."""
    return all(passes_with(saboteur, test, arguments) for arguments in parameters(test))


def always_fails(saboteur: type[Saboteur], test: ContractTest) -> bool:
    """Whether a test fails with all its parameters."""
    return not any(passes_with(saboteur, test, arguments) for arguments in parameters(test))


def passes_with(saboteur: type[Saboteur], test: ContractTest, arguments: dict[str, object]) -> bool:
    """Whether a test passes, or is skipped, with these arguments."""
    try:
        asyncio.run(attempt(saboteur, test, arguments))
    except pytest.skip.Exception:
        return True
    # A test may fail in any way it likes; pytest.fail derives from BaseException.
    except (Exception, pytest.fail.Exception):
        return False
    return True


async def attempt(
    saboteur: type[Saboteur], test: ContractTest, arguments: dict[str, object]
) -> None:
    """Run one test on a rig of its own."""
    clock = VirtualClock(max_rounds=5_000)
    gateway = saboteur(clock, saboteur.poses_as)

    async def open_again() -> Saboteur:
        gateway.restart()
        gateway.reload()
        return gateway

    @contextlib.asynccontextmanager
    async def behind_network() -> AsyncIterator[tuple[Gateway, Network]]:
        network = NaiveNetwork()
        yield gateway.Remote(gateway, network), network

    rig = Rig(
        gateway=gateway,
        clock=clock,
        open_again=open_again,
        settle_requests=lambda: gateway.settle_requests,
        store_raw=gateway.store_raw,
        behind_network=behind_network,
    )
    try:
        async with asyncio.timeout(HANG_S):
            await test(PortContract(), rig=rig, **arguments)
    finally:
        with contextlib.suppress(Exception):
            await rig.aclose()


def parameters(test: ContractTest) -> Iterator[dict[str, object]]:
    """Every combination of arguments that `pytest.mark.parametrize` gives the test."""
    marks: list[pytest.Mark] = getattr(test, "pytestmark", [])
    choices = [list(arguments(mark)) for mark in marks if mark.name == "parametrize"]
    for combination in itertools.product(*choices):
        yield {name: value for chosen in combination for name, value in chosen.items()}


def arguments(mark: pytest.Mark) -> Iterator[dict[str, object]]:
    """The sets of arguments of one `pytest.mark.parametrize`."""
    given, values = mark.args
    names = [given] if isinstance(given, str) else list(given)
    for value in values:
        several = getattr(value, "values", value if len(names) > 1 else (value,))
        yield dict(zip(names, several, strict=True))
