"""A model of SQS in a few lines, and the engine compared with it step by step."""

from __future__ import annotations

import asyncio
from typing import Any

import attrs
from hypothesis import given, settings, strategies as st

from gateways.sqs_server.model import NewMessage, Received
from pump.testing.virtual_clock import VirtualClock

from .shop import Shop

STEPS = st.one_of(
    st.tuples(st.just("send"), st.sampled_from("ab"), st.sampled_from([0, 0, 0, 7])),
    st.tuples(st.just("send"), st.sampled_from("abc"), st.just(0)),
    st.tuples(st.just("receive"), st.integers(1, 4), st.sampled_from([0, 10, 10, 30])),
    st.tuples(st.just("receive"), st.integers(1, 4), st.just(30)),
    st.tuples(st.just("delete"), st.integers(0, 20)),
    st.tuples(st.just("change"), st.integers(0, 20), st.sampled_from([0, 5, 20])),
    st.tuples(st.just("pass"), st.sampled_from([4.0, 7.0, 11.0])),
)


@attrs.define(eq=False)
class Kept:
    """What the model knows of a message."""

    group: str
    visible_at_s: float
    receive_count: int = 0


class Model:
    """Messages in the order they were sent, and since when each is visible."""

    def __init__(self, *, is_fifo: bool) -> None:
        self.is_fifo = is_fifo
        self.messages: dict[str, Kept] = {}

    def deliverable(self, now_s: float) -> list[str]:
        """The ids of all that a receive of any size would get."""
        blocked: set[str] = set()
        found = []
        for id, kept in self.messages.items():
            is_hidden = kept.visible_at_s > now_s
            if is_hidden and self.is_fifo:
                blocked.add(kept.group)
            if not is_hidden and kept.group not in blocked:
                found.append(id)
        return found

    def check_received(self, received: list[Received], max_count: int, now_s: float) -> None:
        deliverable = self.deliverable(now_s)
        ids = [each.id for each in received]
        assert len(ids) == len(set(ids)) == min(max_count, len(deliverable))
        assert set(ids) <= set(deliverable)
        if self.is_fifo:
            for group in {self.messages[id].group for id in ids}:
                ours = [id for id in ids if self.messages[id].group == group]
                theirs = [id for id in deliverable if self.messages[id].group == group]
                assert ours == theirs[: len(ours)], "in order, from the first"

    def is_honoured(self, received: Received, now_s: float) -> bool:
        """Whether a receipt still works."""
        kept = self.messages.get(received.id)
        if kept is None:
            return False
        is_current = kept.receive_count == received.receive_count and kept.visible_at_s > now_s
        return is_current or not self.is_fifo


async def run(steps: list[tuple[Any, ...]], *, is_fifo: bool) -> None:
    clock = VirtualClock()
    shop = await Shop.open(clock)
    queue = await shop.make("orders.fifo" if is_fifo else "orders")
    model = Model(is_fifo=is_fifo)
    seen: list[Received] = []

    for position, step in enumerate(steps):
        now_s = clock.now_s()
        match step:
            case ("send", group, delay_s):
                message = NewMessage(
                    body="x", group=group, deduplication_id=str(position), delay_s=delay_s
                )
                [accepted] = await shop.engine.send(queue, [message])
                model.messages[accepted.id] = Kept(group, now_s + delay_s)
            case ("receive", max_count, visibility_s):
                got = await shop.receive(max_count, visibility_s=visibility_s)
                model.check_received(got, max_count, now_s)
                for each in got:
                    kept = model.messages[each.id]
                    kept.receive_count += 1
                    kept.visible_at_s = now_s + visibility_s
                    assert each.receive_count == kept.receive_count
                seen += got
            case ("delete", which) if seen:
                received = seen[-1 - which % len(seen)]
                is_honoured = model.is_honoured(received, now_s)
                [problem] = await shop.delete(received)
                assert (problem is None) is is_honoured
                if is_honoured:
                    del model.messages[received.id]
            case ("change", which, visibility_s) if seen:
                received = seen[-1 - which % len(seen)]
                is_honoured = model.is_honoured(received, now_s)
                assert (await shop.change(received, visibility_s) is None) is is_honoured
                if is_honoured:
                    model.messages[received.id].visible_at_s = now_s + visibility_s
            case ("pass", seconds):
                await clock.advance(seconds)
        counts = shop.engine.counts(queue)
        assert counts.visible + counts.in_flight + counts.delayed == len(model.messages)
        visible = [k for k in model.messages.values() if k.visible_at_s <= clock.now_s()]
        assert counts.visible == len(visible)
    await shop.engine.aclose()


@given(steps=st.lists(STEPS, min_size=15, max_size=50), is_fifo=st.booleans())
@settings(max_examples=60)
def test_when_used_in_any_way_then_the_engine_does_what_the_model_does(
    steps: list[tuple[Any, ...]], is_fifo: bool
) -> None:
    """R44."""
    asyncio.run(run(steps, is_fifo=is_fifo))
