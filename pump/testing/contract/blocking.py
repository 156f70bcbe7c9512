"""Contract: no call of a gateway blocks the event loop, on which every other message waits."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from ...ports import Gateway, SessionGateway
from ...subscription import MakeChannels
from ..builders import a_message, abandon, ack, defer
from .base import ContractTests
from .rig import Rig

# Below these frames it is the loop that runs, not what it runs.
_LOOP_FILES = ("/asyncio/events.py", "/asyncio/base_events.py", "/asyncio/runners.py")
# What an import reads is read once, before any message.
_IMPORT_FILES = ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>")


class BlockingContract(ContractTests):
    """Needs blockbuster, which knows the calls that block."""

    async def test_when_its_calls_run_then_none_of_them_blocks_the_event_loop(
        self, rig: Rig
    ) -> None:
        """Port: files, sockets and sleeps belong into threads, or awaited."""
        with blocking_calls(rig.gateway, rig.may_block) as found:
            await use_every_port(rig)

        assert found == {}, told(found)


class SessionBlockingContract(ContractTests):
    """The same, of sessions."""

    async def test_when_a_session_is_used_then_none_of_its_calls_blocks_the_event_loop(
        self, rig: Rig
    ) -> None:
        """Port: as for the other calls."""
        rig.needs("has_sessions")
        with blocking_calls(rig.gateway, rig.may_block) as found:
            await use_a_session(rig)

        assert found == {}, told(found)


def told(found: Mapping[str, str]) -> str:
    """What blocked, and the line that called it."""
    calls = "; ".join(f"{call}, called by {where}" for call, where in found.items())
    return f"the event loop was blocked by {calls}; use a thread, or allow it (Rig.may_block)"


async def use_every_port(rig: Rig) -> None:
    """Call each method of the ports once, and close."""
    await rig.gateway.open()
    queue = await rig.open_queue()
    for spec in queue.subscription.queue_specs():
        await rig.admin.ensure(spec, MakeChannels.VALIDATE)
    await queue.look()
    await queue.send(*(a_message() for _ in range(4)))
    await queue.send(a_message(), delay_s=rig.tick_s)
    held = await queue.take(4)
    await queue.extend(*held, lease_s=rig.lease_s)
    for settle, delivery in zip((ack, defer, abandon), held, strict=False):
        await queue.settle(settle(delivery))
    await _look(rig, queue.name)
    await queue.consumer.aclose()
    await queue.producer.aclose()
    if rig.open_again is None:
        await rig.gateway.aclose()
    else:
        await rig.reopen()


async def _look(rig: Rig, queue: str) -> None:
    await rig.admin.queues()
    await rig.admin.stats(queue)
    if rig.capabilities.has_peek:
        await rig.admin.peek(queue)
    if rig.capabilities.has_purge:
        await rig.admin.purge(queue)


async def use_a_session(rig: Rig) -> None:
    """Call each method of a session once."""
    assert isinstance(rig.gateway, SessionGateway)
    queue = await rig.open_ordered_queue("sessions")
    await queue.send(a_message(group="g"))
    wait_s = rig.sure_s
    session = await rig.gateway.accept_session(queue.subscription, None, wait_s=wait_s)
    assert session is not None
    received = await session.receive(max_count=1, wait_s=wait_s)
    await session.renew()
    await session.settle([ack(each) for each in received])
    await session.aclose()


@contextmanager
def blocking_calls(gateway: Gateway, allowed: Collection[str] = ()) -> Iterator[dict[str, str]]:
    """Note which calls blocked the loop below the gateway's package, and where they were made.

    They are let through: an error in their place may be one that the gateway survives.
    """
    found: dict[str, str] = {}
    detector = _detector()
    own = own_folders(gateway)
    for name, function in detector.functions.items():
        # A lock is not a wait unless it is contended, and an executor's queue never is for long.
        if "lock" in name.lower():
            continue
        spared = [*_pairs(allowed), *function.can_block_functions]
        predicate = _noting(name, found, own, spared, function.can_block_predicate)
        function.can_block_predicate = predicate
        function.activate()
    try:
        yield found
    finally:
        for function in detector.functions.values():
            function.deactivate()


def _detector() -> Any:
    try:
        from blockbuster import BlockBuster
    except ImportError:
        pytest.fail("the contract suite needs blockbuster; try: pip install 'pumphouse[testing]'")
    return BlockBuster()


def own_folders(gateway: Gateway) -> tuple[str, ...]:
    """Where the code of a gateway's top-level packages lies."""
    names = {kind.__module__.partition(".")[0] for kind in type(gateway).__mro__}
    files = {
        (str(Path(file).parent) + "/" if Path(file).name == "__init__.py" else file)
        for name in names - {"builtins", "typing", "abc"}
        if (file := _file_of(name))
    }
    return tuple(sorted(files))


def _file_of(name: str) -> str:
    module = sys.modules.get(name)
    if module is None:
        return ""
    paths = list(getattr(module, "__path__", ()))
    return f"{paths[0]}/__init__.py" if paths else getattr(module, "__file__", None) or ""


def _pairs(allowed: Collection[str]) -> list[tuple[str, set[str]]]:
    split = (each.rpartition(":") for each in allowed)
    return [(file, {function}) for file, _, function in split]


def _noting(
    name: str,
    found: dict[str, str],
    own: tuple[str, ...],
    spared: list[tuple[str, Any]],
    is_harmless: Callable[..., bool],
) -> Callable[..., bool]:
    def note(*args: Any, **options: Any) -> bool:
        if not is_harmless(*args, **options):
            where = _caller(sys._getframe(1), own, spared)
            if where:
                found.setdefault(name, where)
        return True

    return note


def _caller(frame: FrameType | None, own: tuple[str, ...], spared: list[tuple[str, Any]]) -> str:
    """The innermost line of the gateway on the stack, empty when it is not there or spared."""
    where = ""
    while frame is not None:
        file, function = frame.f_code.co_filename.replace("\\", "/"), frame.f_code.co_name
        if file in _IMPORT_FILES or any(
            file.endswith(name) and function in functions for name, functions in spared
        ):
            return ""
        if file.endswith(_LOOP_FILES):
            return where
        if not where and file.startswith(own):
            where = f"{function} ({file}:{frame.f_lineno})"
        frame = frame.f_back
    return where
