"""The probe: a store that does not keep conditions is found out before a message is (T8)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateways.s3 import S3Gateway, S3Settings, Storage
from gateways.s3.store.objects import (
    ConditionFailed,
    List,
    Page,
    Put,
    Remove,
    Reply,
    Request,
    ServerTime,
    Unknown,
    WriteConflict,
    drive,
)
from gateways.s3.store.s3_store import probe
from pump.errors import ConfigurationError, ConnectionFailed
from pump.message import new_id
from pump.testing import VirtualClock

from .model_store import ModelS3, ModelStore

Change = Callable[[ModelS3, Request], Reply]


class OddStore:
    """A model that does some requests its own way."""

    def __init__(self, change: Change | None = None) -> None:
        self.s3 = ModelS3(lambda: 1_750_000_000.0)
        self._change = change

    async def perform(self, request: Request) -> Reply:
        return self.s3.apply(request) if self._change is None else self._change(self.s3, request)


def ignores_if_none_match(s3: ModelS3, request: Request) -> Reply:
    if isinstance(request, Put) and request.is_new:
        return s3.apply(Put(request.key, request.body))
    return s3.apply(request)


def ignores_if_match(s3: ModelS3, request: Request) -> Reply:
    if isinstance(request, Put) and request.if_match is not None:
        return s3.apply(Put(request.key, request.body))
    return s3.apply(request)


def makes_what_should_match(s3: ModelS3, request: Request) -> Reply:
    if isinstance(request, Put) and request.key not in s3.objects:
        return s3.apply(Put(request.key, request.body))
    return s3.apply(request)


def refuses_everything(s3: ModelS3, request: Request) -> Reply:
    return ConditionFailed() if isinstance(request, Put) else s3.apply(request)


def refuses_every_match(s3: ModelS3, request: Request) -> Reply:
    is_match = isinstance(request, Put) and request.if_match is not None
    return ConditionFailed() if is_match else s3.apply(request)


def lists_later(s3: ModelS3, request: Request) -> Reply:
    return Page([]) if isinstance(request, List) else s3.apply(request)


async def test_when_conditions_are_kept_then_there_is_no_trouble_and_nothing_left() -> None:
    """T8: in a handful of requests."""
    store = OddStore()

    assert await drive(probe("probe/1/", new_id), store) == ""
    assert not store.s3.objects
    assert store.s3.counts == {"put": 5, "list": 1, "remove": 1}


@pytest.mark.parametrize(
    ("change", "trouble"),
    [
        (ignores_if_none_match, "ignores If-None-Match"),
        (ignores_if_match, "ignores If-Match: an object was written over"),
        (makes_what_should_match, "ignores If-Match of an object that is not there"),
        (refuses_everything, "refuses to write an object that is not there"),
        (refuses_every_match, "refuses If-Match with the version that is there"),
        (lists_later, "does not list at once"),
    ],
)
async def test_when_a_condition_is_not_kept_then_it_is_named_and_nothing_left(
    change: Change, trouble: str
) -> None:
    """T8."""
    store = OddStore(change)

    assert trouble in await drive(probe("probe/1/", new_id), store)
    assert not store.s3.objects


async def test_when_the_sdk_was_refused_because_of_itself_then_that_is_no_trouble() -> None:
    """T8: a lost answer at the wrong moment."""

    def answers_late(s3: ModelS3, request: Request) -> Reply:
        reply = s3.apply(request)
        return ConditionFailed(may_be_ours=True) if isinstance(request, Put) else reply

    assert await drive(probe("probe/1/", new_id), OddStore(answers_late)) == ""


async def test_when_what_was_busy_was_written_after_all_then_that_is_no_trouble() -> None:
    """T8: the first copy of the request is there, the second one met another write."""

    def is_busy_after_the_first(s3: ModelS3, request: Request) -> Reply:
        is_first = isinstance(request, Put) and not s3.objects
        reply = s3.apply(request)
        return WriteConflict(may_be_ours=True) if is_first else reply

    assert await drive(probe("probe/1/", new_id), OddStore(is_busy_after_the_first)) == ""


async def test_when_the_store_is_busy_then_it_is_asked_again_but_not_for_ever() -> None:
    """T8, R51."""
    met: list[Request] = []

    def busy_at_first(s3: ModelS3, request: Request) -> Reply:
        met.append(request)
        return WriteConflict() if len(met) < 4 else s3.apply(request)

    assert await drive(probe("probe/1/", new_id), OddStore(busy_at_first)) == ""
    with pytest.raises(ConnectionFailed, match="busy"):
        await drive(probe("probe/1/", new_id), OddStore(lambda *_: WriteConflict()))


@pytest.mark.parametrize("kind", [Put, List], ids=["put", "list"])
async def test_when_the_store_does_not_answer_then_that_is_raised(kind: type[Request]) -> None:
    """R51."""

    def is_silent(s3: ModelS3, request: Request) -> Reply:
        lost = Unknown(ConnectionFailed("s3://bucket", "lost"))
        return lost if isinstance(request, kind) else s3.apply(request)

    with pytest.raises(ConnectionFailed):
        await drive(probe("probe/1/", new_id), OddStore(is_silent))


# -- opening ------------------------------------------------------------------------------------


def a_gateway(store: OddStore | ModelStore, time: ServerTime, **fields: bool) -> S3Gateway:
    settings = S3Settings(bucket="bucket", prefix="team", **fields)  # type: ignore[arg-type]
    return S3Gateway(settings, VirtualClock(), storage=Storage(store=store, time=time))


async def test_when_a_gateway_is_opened_then_it_probes_once() -> None:
    """T8."""
    time = ServerTime(VirtualClock().now_s)
    model = ModelS3(lambda: 1_750_000_000.0)
    gateway = a_gateway(ModelStore(model, time, VirtualClock().now_s), time)

    await gateway.open()
    await gateway.open()

    assert model.counts.total() == 7
    await gateway.aclose()


async def test_when_a_store_ignores_conditions_then_opening_names_the_remedy() -> None:
    """T8: before any message."""
    gateway = a_gateway(OddStore(ignores_if_match), ServerTime(VirtualClock().now_s))

    with pytest.raises(ConfigurationError) as caught:
        await gateway.open()

    assert caught.value.field == "S3Settings.bucket"
    assert "ignores If-Match" in str(caught.value)
    assert "Use AWS S3, or a store" in str(caught.value)


async def test_when_it_is_told_not_to_then_opening_asks_nothing() -> None:
    """T8: the caller knows the store."""
    store = OddStore(ignores_if_match)
    gateway = a_gateway(store, ServerTime(VirtualClock().now_s), probe=False)

    await gateway.open()

    assert not store.s3.counts


async def test_when_replies_have_no_date_then_queues_cannot_be_opened() -> None:
    """T8: leases go by the store's clock."""
    gateway = a_gateway(OddStore(), ServerTime(VirtualClock().now_s))

    with pytest.raises(ConfigurationError, match="no Date"):
        await gateway.open()


async def test_when_the_probe_is_left_half_way_then_only_its_own_prefix_has_remains() -> None:
    """T8: no queue is ever touched by it."""
    store = OddStore()
    steps = probe("team/probe/1/", new_id)
    await store.perform(next(steps))
    steps.close()

    assert all(key.startswith("team/probe/1/") for key in store.s3.objects)
    await store.perform(Remove(list(store.s3.objects)))
