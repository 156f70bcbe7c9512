"""decide: every row of its table, and what holds for any group of failures."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from hypothesis import given, strategies as st

from pump.backoff import Backoff
from pump.decide import MAX_DETAIL, decide, describe
from pump.errors import (
    MAX_TEXT,
    ConfigurationError,
    ConnectionFailed,
    CorruptedMessage,
    HandlerNotFound,
    HandlerTimeout,
    InvalidReceipt,
    LeaseLost,
    MappingError,
    SessionLockLost,
    TooManyHandlers,
    UnreadableError,
    examined,
    leaves,
    text_of,
    trace_of,
)
from pump.outcome import (
    ACK,
    LONGEST_DEFERRAL_S,
    Defer,
    DeferMessage,
    InvalidMessage,
    Outcome,
    Reject,
    RejectionReason,
    RejectMessage,
)
from pump.subscription import FailureStrategy, dead_letter, hybrid, retry

BACKOFF = Backoff(initial=timedelta(seconds=2), factor=2, jitter=0.5)
HYBRID = hybrid(3, "dead", backoff=BACKOFF)
DEAD_LETTERED = RejectionReason.DELIVERY_ERROR
UNACCEPTABLE = RejectionReason.UNACCEPTABLE


def later(seconds: float) -> DeferMessage:
    return DeferMessage(timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, ACK),
        (later(7), Defer(7.0)),
        (later(0), Defer(0.0)),
        (later(-5), Defer(0.0)),
        (DeferMessage(timedelta.max), Defer(LONGEST_DEFERRAL_S)),
        (DeferMessage(), Defer(2.0)),
        (RejectMessage("no"), Reject(DEAD_LETTERED, "no")),
        (InvalidMessage("what?"), Reject(UNACCEPTABLE, "what?")),
        (
            CorruptedMessage("Order", "its checksum does not fit"),
            Reject(
                RejectionReason.CORRUPTED,
                "CorruptedMessage: message of type 'Order': its checksum does not fit",
            ),
        ),
        (
            MappingError("Order", "no id"),
            Reject(UNACCEPTABLE, "MappingError: message of type 'Order': no id"),
        ),
        (HandlerNotFound("Order"), Reject(UNACCEPTABLE, describe(HandlerNotFound("Order")))),
        # Of another message than the one in hand, or the handler would have been cancelled.
        (LeaseLost("orders", "m-1"), Defer(2.0)),
        (SessionLockLost("orders", "s-1"), Defer(2.0)),
        (ValueError("boom"), Defer(2.0)),
        (TooManyHandlers("Order", ("a", "b")), Defer(2.0)),
        (HandlerTimeout("h", 3), Defer(2.0)),
        (ConnectionFailed("db", "down"), Defer(2.0)),
        (InvalidReceipt("other", "r"), Defer(2.0)),
        (asyncio.CancelledError(), Defer(2.0)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_when_handling_ends_then_the_outcome_is_that_of_the_table(
    error: BaseException | None, outcome: Outcome
) -> None:
    """R35."""
    assert decide(error, attempt=1, strategy=HYBRID) == outcome


@pytest.mark.parametrize(
    ("strategy", "max_deliveries"),
    [
        (retry(5), 6),
        (retry(0), 1),
        (hybrid(3), 4),
        (hybrid(0), 1),
        (dead_letter("dead"), 1),
    ],
)
def test_when_max_retries_is_n_then_a_failing_message_is_delivered_n_plus_one_times(
    strategy: FailureStrategy, max_deliveries: int
) -> None:
    """R17, R18, R19, T5."""
    error = ValueError("boom")

    for attempt in range(1, max_deliveries):
        assert isinstance(decide(error, attempt=attempt, strategy=strategy), Defer)
    for attempt in (max_deliveries, max_deliveries + 1, 1_000):
        assert decide(error, attempt=attempt, strategy=strategy) == Reject(
            DEAD_LETTERED, "ValueError: boom"
        )


@given(st.integers(1, 1_000_000))
def test_when_retries_have_no_maximum_then_a_failing_message_is_always_delivered_again(
    attempt: int,
) -> None:
    assert isinstance(decide(ValueError(), attempt=attempt, strategy=retry(None)), Defer)


@given(st.integers(1, 3), st.floats(0, 1, exclude_max=True))
def test_when_a_message_is_retried_then_the_strategys_backoff_sets_the_delay(
    attempt: int, chance: float
) -> None:
    outcome = decide(ValueError(), attempt=attempt, strategy=HYBRID, chance=chance)

    assert outcome == Defer(BACKOFF.delay_s(attempt, chance))


def test_when_a_message_is_deferred_without_a_delay_then_the_backoff_sets_it() -> None:
    assert decide(DeferMessage(), attempt=3, strategy=HYBRID) == Defer(8.0)
    assert decide(DeferMessage(), attempt=3, strategy=dead_letter("d")) == Defer(4.0)


@pytest.mark.parametrize("attempt", [1, 4, 100])
def test_when_a_handler_defers_then_attempts_do_not_matter(attempt: int) -> None:
    """R35: a deferral is the handler's wish, and no failure."""
    assert decide(later(1), attempt=attempt, strategy=hybrid(0)) == Defer(1.0)


# What a handler may fail with, by gravity: the first of these in a group decides.
_RANKS: tuple[tuple[BaseException, ...], ...] = (
    (later(5), DeferMessage()),
    (RejectMessage("reject"),),
    (InvalidMessage("invalid"), MappingError("T", "x"), HandlerNotFound("T")),
    (ValueError("error"), asyncio.CancelledError(), KeyError("k"), HandlerTimeout("h", 1)),
)
_LEAVES = st.sampled_from([error for rank in _RANKS for error in rank])


def _rank(error: BaseException) -> int:
    return next(number for number, rank in enumerate(_RANKS) if error in rank)


@st.composite
def groups(draw: st.DrawFn) -> tuple[BaseException, list[BaseException]]:
    """An arbitrarily nested group, and its leaves from left to right."""
    leaves: list[BaseException] = []

    def build(depth: int) -> BaseException:
        if depth and draw(st.booleans()):
            members = [build(depth - 1) for _ in range(draw(st.integers(1, 4)))]
            return BaseExceptionGroup("group", members)
        leaf = draw(_LEAVES)
        leaves.append(leaf)
        return leaf

    return BaseExceptionGroup(
        "outermost", [build(3) for _ in range(draw(st.integers(1, 4)))]
    ), leaves


@given(groups(), st.integers(1, 6), st.sampled_from([HYBRID, retry(2), dead_letter("dead")]))
def test_when_several_handlers_fail_then_the_gravest_failure_decides(
    group_and_leaves: tuple[BaseException, list[BaseException]],
    attempt: int,
    strategy: FailureStrategy,
) -> None:
    """defer > reject > invalid > error, however deeply the failures are nested."""
    group, leaves = group_and_leaves

    outcome = decide(group, attempt=attempt, strategy=strategy)

    gravest = min(leaves, key=_rank)
    assert outcome == decide(gravest, attempt=attempt, strategy=strategy)


@pytest.mark.parametrize(
    ("failures", "outcome"),
    [
        ([ValueError(), RejectMessage("r"), later(5), InvalidMessage("i")], Defer(5.0)),
        ([ValueError(), InvalidMessage("i"), RejectMessage("r")], Reject(DEAD_LETTERED, "r")),
        ([ValueError(), InvalidMessage("i")], Reject(UNACCEPTABLE, "i")),
        ([ValueError(), KeyError()], Defer(2.0)),
        (
            [ExceptionGroup("inner", [ValueError(), ExceptionGroup("innermost", [later(9)])])],
            Defer(9.0),
        ),
    ],
)
def test_when_a_group_is_settled_then_defer_beats_reject_beats_invalid_beats_error(
    failures: list[Exception], outcome: Outcome
) -> None:
    assert decide(ExceptionGroup("all", failures), attempt=1, strategy=HYBRID) == outcome


@given(st.text())
def test_when_a_detail_is_long_then_what_travels_is_cut(text: str) -> None:
    long = text + "x" * MAX_DETAIL

    for error in (RejectMessage(long), InvalidMessage(long), ValueError(long)):
        outcome = decide(error, attempt=1, strategy=dead_letter("dead"))
        assert isinstance(outcome, Reject)
        assert len(outcome.detail) == MAX_DETAIL
    assert describe(ValueError(long)) == f"ValueError: {long}"[:MAX_DETAIL]


def test_when_an_error_is_decided_on_then_it_is_not_changed() -> None:
    error = ExceptionGroup("all", [ValueError("a"), later(3)])

    first = decide(error, attempt=1, strategy=HYBRID)

    assert decide(error, attempt=1, strategy=HYBRID) == first
    assert error.__cause__ is None


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (ValueError("card 4929"), "ValueError"),
        (ExceptionGroup("2 of 2", [ValueError("card 4929"), KeyError("4929")]), "ValueError"),
        (RejectMessage("told to"), "told to"),
        (MappingError("Order", "$.quantity"), describe(MappingError("Order", "$.quantity"))),
    ],
    ids=["an error", "a group", "a signal", "ours"],
)
def test_when_errors_are_not_to_be_quoted_then_only_what_is_meant_to_be_read_is(
    error: Exception, detail: str
) -> None:
    """R28, R68."""
    outcome = decide(error, attempt=9, strategy=HYBRID, quotes_errors=False)

    assert isinstance(outcome, Reject)
    assert outcome.detail == detail


class Silent(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")

    __repr__ = __str__


class Panic(BaseException):
    pass


@pytest.mark.parametrize(
    "error",
    [
        Silent(),
        ExceptionGroup("several", [Silent()]),
        RejectMessage(Silent()),  # type: ignore[arg-type]
        InvalidMessage(None),  # type: ignore[arg-type]
        Panic("no Exception"),
        BaseExceptionGroup("several", [Panic("one"), ValueError("two")]),
        ValueError("half a character: \ud800"),
    ],
    ids=["mute", "a mute in a group", "mute detail", "no detail", "panic", "panics", "surrogate"],
)
def test_when_an_error_is_a_strange_one_then_it_is_decided_on_like_any_other(
    error: BaseException,
) -> None:
    """R93."""
    outcome = decide(error, attempt=9, strategy=HYBRID)

    assert isinstance(outcome, Reject)
    assert outcome.detail.encode("utf-8") == outcome.detail.encode("utf-8", "replace")


def test_when_text_cannot_be_had_then_what_there_is_is_named() -> None:
    """R93."""
    assert text_of(Silent()) == "<Silent without text: ValueError>"
    assert text_of(Silent(), repr) == "<Silent without text: ValueError>"
    assert len(text_of(ValueError("x" * 10_000_000))) == MAX_TEXT


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt])
def test_when_taking_text_ends_the_program_then_it_does(end: type[BaseException]) -> None:
    class Exits(Exception):
        def __str__(self) -> str:
            raise end

    with pytest.raises(end):
        text_of(Exits())


class Nameless(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise ValueError


class Hidden(Exception, metaclass=Nameless):
    pass


class Circular(ExceptionGroup[Exception]):
    @property
    def exceptions(self) -> tuple[Exception, ...]:
        return (self,)


def nested(error: Exception, depth: int) -> Exception:
    for _ in range(depth):
        error = ExceptionGroup("one more", [error])
    return error


@pytest.mark.parametrize("error", [Hidden(), nested(Hidden(), 3)], ids=["alone", "in groups"])
def test_when_an_error_raises_as_it_is_looked_at_then_another_stands_for_it(
    error: Exception,
) -> None:
    """R93."""
    seen = examined(error)

    assert isinstance(seen, UnreadableError)
    assert describe(seen).endswith("raises when it is asked what it is")
    assert "Hidden" in trace_of(error) or "ExceptionGroup" in trace_of(error)


@pytest.mark.parametrize(
    "error",
    [nested(ValueError("one"), 5_000), Circular("itself", [ValueError("one")])],
    ids=["deep", "circular"],
)
def test_when_a_group_has_no_end_for_a_recursion_then_its_members_are_found(
    error: Exception,
) -> None:
    """R93."""
    assert [str(each) for each in leaves(error)] == ["one"]
    assert examined(error) is error
    assert decide(error, attempt=9, strategy=HYBRID) == Reject(DEAD_LETTERED, "ValueError: one")
    assert trace_of(error)


def test_when_a_deferral_is_by_no_time_then_it_is_refused_where_it_is_raised() -> None:
    with pytest.raises(ConfigurationError, match="give a timedelta"):
        DeferMessage(5)  # type: ignore[arg-type]
