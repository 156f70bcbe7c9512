"""The queue file: how queues in objects are made, checked and changed (R2, R22, R36, R56)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import pytest

from gateways.s3.layout import Layout, QueueDescription, QueueKeys
from gateways.s3.queue_options import (
    QueueFile,
    Wanted,
    declare,
    decode,
    encode,
    read,
    reread,
    validate,
)
from gateways.s3.store.objects import (
    ConditionFailed,
    Put,
    Reply,
    Request,
    Steps,
    Unknown,
    WriteConflict,
    WrittenObject,
)
from pump.capabilities import OrderingMode
from pump.errors import ConfigurationError, ConnectionFailed, QueueMismatch, QueueNotFound
from pump.subscription import QueueSpec

from .model_store import ModelS3

_T = TypeVar("_T")

KEYS = QueueKeys("prefix/", "orders")
LOST = Unknown(ConnectionFailed("s3://bucket", "lost"))


def wanted(name: str = "orders", **fields: Any) -> Wanted:
    return Wanted.from_spec(QueueSpec(name=name, **fields))


def a_model() -> ModelS3:
    return ModelS3(lambda: 0.0)


def run(steps: Steps[_T], answer: Callable[[Request], Reply]) -> _T:
    """Drive a protocol with a function instead of a store."""
    try:
        request = next(steps)
        while True:
            request = steps.send(answer(request))
    except StopIteration as end:
        result: _T = end.value
        return result


# -- making -------------------------------------------------------------------------------------


@pytest.mark.parametrize("default", list(Layout))
def test_when_a_queue_is_made_then_its_file_says_what_it_is_like(default: Layout) -> None:
    s3 = a_model()

    made = run(declare(KEYS, wanted(ordering=OrderingMode.LIFO), default=default), s3.apply)

    assert made.facts == QueueDescription(name="orders", layout=default, is_lifo=True)
    assert list(s3.objects) == ["prefix/queues/orders/queue.json"]
    assert run(read(KEYS), s3.apply) == made


def test_when_a_layout_is_asked_for_then_the_queue_has_that_one() -> None:
    s3 = a_model()
    options = {"layout": "log", "deduplication_window": timedelta(seconds=20)}

    made = run(declare(KEYS, wanted(options=options), default=Layout.LEASES), s3.apply)

    assert made.facts.layout is Layout.LOG
    assert made.facts.deduplication_window_s == 20.0


def test_when_a_queue_is_made_as_it_is_then_nothing_is_written() -> None:
    """A second worker that starts."""
    s3 = a_model()
    run(declare(KEYS, wanted(), default=Layout.LEASES), s3.apply)

    run(declare(KEYS, wanted(), default=Layout.LOG), s3.apply)

    assert s3.counts == {"get": 2, "put": 1}


def test_when_a_queue_is_made_otherwise_then_it_takes_that_on_and_keeps_its_layout() -> None:
    """As on the embedded gateways."""
    s3 = a_model()
    run(declare(KEYS, wanted(options={"layout": "log"}), default=Layout.LEASES), s3.apply)

    strict = wanted(ordering_guarantee=True, lease=timedelta(seconds=5))
    changed = run(declare(KEYS, strict, default=Layout.LEASES), s3.apply)

    assert changed.facts == QueueDescription(name="orders", layout=Layout.LOG, is_strict=True)


def test_when_only_the_name_counts_then_what_its_owner_set_stays() -> None:
    """R22: a rejection target of others."""
    s3 = a_model()
    strict = wanted(ordering_guarantee=True)
    made = run(declare(KEYS, strict, default=Layout.LOG), s3.apply)

    assert run(declare(KEYS, wanted(), default=Layout.LEASES), s3.apply) == made


def test_when_another_layout_is_asked_for_then_it_is_refused_with_a_remedy() -> None:
    """R56: messages are in the old one."""
    s3 = a_model()
    run(declare(KEYS, wanted(), default=Layout.LEASES), s3.apply)

    with pytest.raises(QueueMismatch, match="queue of another name"):
        run(declare(KEYS, wanted(options={"layout": "log"}), default=Layout.LEASES), s3.apply)


@pytest.mark.parametrize("hurdle", [ConditionFailed(), WriteConflict()], ids=["refused", "busy"])
def test_when_somebody_else_makes_it_at_once_then_both_are_content(hurdle: Reply) -> None:
    """T8."""
    s3 = a_model()
    met: list[Request] = []

    def answer(request: Request) -> Reply:
        if isinstance(request, Put) and not met:
            met.append(request)
            run(declare(KEYS, wanted(), default=Layout.LEASES), s3.apply)
            return hurdle
        return s3.apply(request)

    strict = wanted(ordering_guarantee=True)
    made = run(declare(KEYS, strict, default=Layout.LEASES), answer)

    assert made.facts.is_strict
    assert run(read(KEYS), s3.apply) == made


def test_when_others_never_let_it_through_then_it_gives_up() -> None:
    """R51: rather than try for ever."""
    s3 = a_model()

    with pytest.raises(ConnectionFailed):
        run(
            declare(KEYS, wanted(), default=Layout.LEASES),
            lambda request: WriteConflict() if isinstance(request, Put) else s3.apply(request),
        )


# -- checking -----------------------------------------------------------------------------------


def test_when_there_is_no_queue_then_it_is_named() -> None:
    """R2."""
    with pytest.raises(QueueNotFound, match="orders"):
        run(read(KEYS), a_model().apply)
    with pytest.raises(QueueNotFound, match="orders"):
        run(validate(KEYS, wanted()), a_model().apply)


def test_when_a_queue_fits_then_validating_is_content() -> None:
    """R56: what is not asked for fits, the layout too."""
    s3 = a_model()
    run(declare(KEYS, wanted(options={"layout": "log"}), default=Layout.LEASES), s3.apply)

    run(validate(KEYS, wanted(lease=timedelta(seconds=5))), s3.apply)


def test_when_a_queue_differs_then_validating_says_where() -> None:
    """R56."""
    s3 = a_model()
    run(declare(KEYS, wanted(), default=Layout.LEASES), s3.apply)

    with pytest.raises(QueueMismatch) as caught:
        run(validate(KEYS, wanted(ordering=OrderingMode.LIFO, options={"layout": "log"})), s3.apply)

    assert caught.value.detail == (
        "layout is 'leases', asked for 'log', is_lifo is False, asked for True"
    )


def test_when_its_dead_letter_queue_is_missing_then_validating_names_that() -> None:
    """R22."""
    s3 = a_model()
    redriven = wanted(max_receive_count=3, dead_letter_queue="dead")
    run(declare(KEYS, redriven, default=Layout.LEASES), s3.apply)

    with pytest.raises(QueueNotFound, match="dead"):
        run(validate(KEYS, redriven), s3.apply)


# -- looking again ------------------------------------------------------------------------------


def test_when_a_queue_is_looked_at_again_then_only_a_change_is_read() -> None:
    s3 = a_model()
    made = run(declare(KEYS, wanted(), default=Layout.LEASES), s3.apply)

    assert run(reread(KEYS, made), s3.apply) is made
    assert run(reread(KEYS, made), lambda _: LOST) is made
    changed = run(declare(KEYS, wanted(ordering_guarantee=True), default=Layout.LEASES), s3.apply)
    assert run(reread(KEYS, made), s3.apply) == changed
    s3.objects.clear()
    with pytest.raises(QueueNotFound):
        run(reread(KEYS, made), s3.apply)


@pytest.mark.parametrize(
    "steps",
    [lambda: read(KEYS), lambda: declare(KEYS, wanted(), default=Layout.LOG)],
    ids=["read", "declare"],
)
def test_when_the_store_does_not_answer_then_that_is_raised(
    steps: Callable[[], Steps[QueueFile]],
) -> None:
    """R51."""
    with pytest.raises(ConnectionFailed):
        run(steps(), lambda _: LOST)


def test_when_the_write_is_not_answered_then_that_is_raised() -> None:
    """R51: making it again is harmless."""
    s3 = a_model()

    def answer(request: Request) -> Reply:
        return LOST if isinstance(request, Put) else s3.apply(request)

    with pytest.raises(ConnectionFailed):
        run(declare(KEYS, wanted(), default=Layout.LEASES), answer)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"version": 1}', b'{"version": 1, "layout": "x"}'])
def test_when_a_file_is_not_ours_then_the_error_says_so(body: bytes) -> None:
    """R56."""
    with pytest.raises(QueueMismatch, match="written by something else"):
        decode(body, "orders")


def test_when_a_file_is_of_a_later_version_then_the_error_says_so() -> None:
    """R56: older processes must not guess."""
    body = encode(QueueDescription(name="orders")).replace(b'"version":1', b'"version":2')

    with pytest.raises(QueueMismatch, match="version 2"):
        decode(body, "orders")


# -- options ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": " "}, "QueueSpec.name"),
        ({"name": ".."}, "QueueSpec.name"),
        ({"name": "é" * 200}, "QueueSpec.name"),
        ({"options": {"colour": "red"}}, "QueueSpec.options"),
        ({"options": {"layout": "heap"}}, "QueueSpec.options['layout']"),
        (
            {"options": {"layout": "log", "deduplication_window": -1}},
            "QueueSpec.options['deduplication_window']",
        ),
        (
            {"options": {"layout": "leases", "deduplication_window": 60}},
            "QueueSpec.options['deduplication_window']",
        ),
        (
            {"ordering": OrderingMode.LIFO, "ordering_guarantee": True},
            "QueueSpec.ordering_guarantee",
        ),
        ({"max_receive_count": 0, "dead_letter_queue": "d"}, "QueueSpec.max_receive_count"),
        ({"max_receive_count": 1}, "QueueSpec.dead_letter_queue"),
        ({"max_receive_count": 1, "dead_letter_queue": "orders"}, "QueueSpec.dead_letter_queue"),
    ],
    ids=str,
)
def test_when_a_queue_cannot_be_had_then_the_field_is_named(
    fields: dict[str, Any], field: str
) -> None:
    """R56, R36, R37."""
    with pytest.raises(ConfigurationError) as caught:
        wanted(**fields)

    assert caught.value.field == field


def test_when_duplicates_are_to_be_known_then_the_default_layout_must_know_them() -> None:
    """R39."""
    asked = wanted(options={"deduplication_window": 60})

    with pytest.raises(ConfigurationError, match="layout='log'"):
        run(declare(KEYS, asked, default=Layout.LEASES), a_model().apply)
    made = run(declare(KEYS, asked, default=Layout.LOG), a_model().apply)
    assert made.facts.deduplication_window_s == 60.0


def test_when_a_reply_is_a_write_then_its_version_is_known() -> None:
    """T8."""
    s3 = a_model()

    made = run(declare(KEYS, wanted(), default=Layout.LEASES), s3.apply)

    assert s3.apply(Put(KEYS.facts, b"x", if_match=made.etag)) == WrittenObject(
        s3.objects[KEYS.facts].etag
    )
