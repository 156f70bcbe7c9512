"""Everything that may cross a process survives pickle (STYLE §4)."""

from __future__ import annotations

import copy
import pickle
from itertools import product
from typing import Any

import attrs
import pytest
from msgspec import Struct

from tests.together import together

from .specimens import REQUESTS, SIGNALS, VALUES, an_error, error_classes, value_classes

# Parts of a running program: they hold tasks, sockets and handlers, and stay where they are.
STAYS_HERE = {
    "DeliveryProcessor",
    "Context",
    "Dispatch",
    "Performer",
    "PumpParts",
    "Registration",
    "RuntimeParts",
    "Services",
}
FROZEN = (attrs.exceptions.FrozenInstanceError, AttributeError)
PROTOCOLS = range(2, pickle.HIGHEST_PROTOCOL + 1)


def names_of(kind: Any) -> list[str]:
    """What the fields of a value class are called."""
    if issubclass(kind, Struct):
        return list(kind.__struct_fields__)
    return [field.name for field in attrs.fields(kind)]


def fields_of(value: Any) -> Any:
    """A value's fields, down to the leaves: deliveries are compared by identity otherwise."""
    if isinstance(value, BaseException):
        return (type(value), value.args, str(value))
    if attrs.has(type(value)) or isinstance(value, Struct):
        names = names_of(type(value))
        return (type(value), [(each, fields_of(getattr(value, each))) for each in names])
    if isinstance(value, tuple):
        return tuple(fields_of(each) for each in value)
    return value


def test_when_an_error_crosses_a_process_then_it_arrives_whole() -> None:
    with together() as each:
        for kind, protocol in product(error_classes(), PROTOCOLS):
            with each(f"{kind.__name__}, protocol {protocol}"):
                _arrives_whole(kind, protocol)


def _arrives_whole(kind: type[BaseException], protocol: int) -> None:
    error = an_error(kind)

    arrived = pickle.loads(pickle.dumps(error, protocol))

    assert type(arrived) is kind
    assert str(arrived) == str(error)
    assert fields_of(arrived.args) == fields_of(error.args)
    if attrs.has(kind):
        for field in attrs.fields(kind):
            assert fields_of(getattr(arrived, field.name)) == fields_of(getattr(error, field.name))


def test_when_an_error_is_raised_then_it_can_carry_cause_context_and_notes() -> None:
    """A frozen exception must still let Python write its traceback."""
    with together() as each:
        for kind in error_classes():
            with each(kind.__name__):
                _can_be_raised(kind)


def _can_be_raised(kind: type[BaseException]) -> None:
    error = an_error(kind)

    with pytest.raises(kind) as caught:
        raise error from ValueError("the cause")
    caught.value.add_note("a note")

    assert caught.value is error
    assert error.__traceback__ is not None
    assert isinstance(error.__cause__, ValueError)
    assert hash(error) is not None
    assert str(error) or not error.args
    assert copy.copy(error).args == error.args


def test_when_a_signal_crosses_a_process_then_it_says_the_same() -> None:
    with together() as each:
        for signal in SIGNALS:
            with each(repr(signal)):
                arrived = pickle.loads(pickle.dumps(signal))
                assert vars(arrived) == vars(signal)
                assert str(arrived) == str(signal)


def test_when_a_value_crosses_a_process_then_it_arrives_whole() -> None:
    with together() as each:
        for kind, protocol in product(VALUES, PROTOCOLS):
            with each(f"{kind.__name__}, protocol {protocol}"):
                value = VALUES[kind]
                assert type(value) is kind
                assert fields_of(pickle.loads(pickle.dumps(value, protocol))) == fields_of(value)


def test_when_a_request_crosses_a_process_then_it_arrives_whole() -> None:
    with together() as each:
        for request in REQUESTS:
            with each(type(request).__name__):
                assert pickle.loads(pickle.dumps(request)) == request


def test_when_a_value_class_is_added_then_it_is_tested_here_or_said_to_stay() -> None:
    missing = {each.__name__ for each in value_classes()} - {each.__name__ for each in VALUES}

    assert missing == STAYS_HERE


def test_when_a_value_exists_then_it_cannot_be_changed() -> None:
    """STYLE §4: values are frozen."""
    with together() as each:
        for kind, value in VALUES.items():
            if kind.__name__ not in {"PumpStats", "RunTimes"}:
                for name in names_of(kind) or ["anything"]:
                    with each(f"{kind.__name__}.{name}"), pytest.raises(FROZEN):
                        setattr(value, name, None)
