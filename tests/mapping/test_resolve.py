"""Which request a message is: by resolver, by name, or by what the subscription is for."""

from typing import Any

import attrs
import pytest

from pump.errors import ConfigurationError, MappingError
from pump.headers import CLAIM
from pump.mapping import Mapper, type_name_of
from pump.message import Message
from pump.outcome import DeferMessage
from pump.subscription import Subscription

from .kinds import Box, Cat, Dog, PlaceOrder, Renamed, RenamedChild, Row

orders = Subscription(queue="orders", request=PlaceOrder)


def message(type: str = "", body: bytes = b"{}") -> Message:
    return Message(body=body, type=type)


def test_when_a_foreign_message_has_no_headers_then_the_subscription_says_what_it_is() -> None:
    foreign = Message(body=b'{"order_id": "o-9", "quantity": 2}')

    assert Mapper().read(foreign, orders) == PlaceOrder("o-9", 2)


def test_when_the_type_is_the_subscriptions_then_it_need_not_be_registered() -> None:
    assert Mapper().resolve(message("PlaceOrder"), orders) is PlaceOrder


def test_when_the_type_names_another_known_request_then_that_is_it() -> None:
    assert Mapper(types=[Cat, PlaceOrder]).resolve(message("Cat"), orders) is Cat


def test_when_the_type_is_unknown_then_the_error_lists_the_known_ones() -> None:
    with pytest.raises(MappingError, match="'Fish': unknown type, known: PlaceOrder, Cat, Dog;"):
        Mapper(types=[Cat, Dog]).resolve(message("Fish"), orders)


@pytest.mark.parametrize("kind", [dict, bytes, object])
def test_when_the_subscription_is_to_a_builtin_type_then_it_takes_every_message(kind: Any) -> None:
    raw = Subscription(queue="archive", request=kind)

    assert Mapper(types=[Cat]).resolve(message("Cat"), raw) is kind
    assert Mapper(types=[Cat]).resolve(message("Fish"), raw) is kind


def test_when_a_resolver_is_given_then_it_is_asked_first() -> None:
    chooser = attrs.evolve(orders, resolver=lambda m: Dog if b"barks" in m.body else None)
    mapper = Mapper(types=[Cat])

    assert mapper.resolve(message("Cat", b'{"barks": true}'), chooser) is Dog
    assert mapper.resolve(message("Cat"), chooser) is Cat
    assert mapper.resolve(message(""), chooser) is PlaceOrder


def test_when_a_resolver_gives_a_generic_then_it_is_taken() -> None:
    boxes: Any = Box[int]
    chooser = Subscription(queue="q", resolver=lambda _: boxes)

    assert Mapper().read(message("", b'{"item": 1}'), chooser) == Box(1)


def test_when_a_resolver_fails_then_it_is_a_mapping_error() -> None:
    chooser = Subscription(queue="q", resolver=lambda m: {"Cat": Cat}[m.type])

    with pytest.raises(MappingError, match="the resolver failed: KeyError: Fish"):
        Mapper().resolve(message("Fish"), chooser)


def test_when_a_resolver_raises_a_signal_then_it_gets_out() -> None:
    def busy(_: Message) -> type:
        raise DeferMessage

    with pytest.raises(DeferMessage):
        Mapper().resolve(message(), Subscription(queue="q", resolver=busy))


def test_when_a_resolver_gives_no_class_then_it_is_a_mapping_error() -> None:
    wrong: Any = "Cat"

    with pytest.raises(MappingError, match="the resolver returned str, no class"):
        Mapper().resolve(message(), Subscription(queue="q", resolver=lambda _: wrong))


def test_when_nothing_says_what_it_is_then_it_is_a_mapping_error() -> None:
    silent = Subscription(queue="q", resolver=lambda _: None)

    with pytest.raises(MappingError, match="it has no type, and its subscription no request"):
        Mapper().resolve(message(), silent)
    with pytest.raises(MappingError, match="known: none"):
        Mapper().resolve(message("Fish"), silent)


def test_when_hundreds_of_types_are_known_then_the_error_shows_a_few() -> None:
    names = {f"name-{n}": Cat for n in range(300)}

    with pytest.raises(MappingError) as caught:
        Mapper(names=names).resolve(message("Fish"), orders)
    assert len(caught.value.detail) < 400


def test_when_a_class_names_its_message_type_then_that_is_written_and_read() -> None:
    mapper = Mapper(types=[Renamed, RenamedChild])
    sent = mapper.encode(Renamed(5))

    assert sent.type == "orders.renamed"
    assert mapper.read(sent, orders) == Renamed(5)
    assert mapper.encode(RenamedChild()).type == "RenamedChild"


def test_when_a_class_has_further_names_then_all_are_read_and_the_first_is_written() -> None:
    mapper = Mapper(types=[Cat], names={"animals.cat": Cat, "Feline": Cat, "old": Renamed})

    assert mapper.encode(Cat(True)).type == "animals.cat"
    assert mapper.encode(Renamed()).type == "orders.renamed"
    for name in ("animals.cat", "Feline", "Cat"):
        assert mapper.resolve(message(name), orders) is Cat


def test_when_two_classes_share_a_name_then_it_is_a_configuration_error() -> None:
    class Cat(PlaceOrder): ...

    from .kinds import Cat as TheOther

    with pytest.raises(ConfigurationError, match="'Cat' already means"):
        Mapper(types=[Cat, TheOther])


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (PlaceOrder, "PlaceOrder"),
        (Renamed, "orders.renamed"),
        (Row, "Row"),
        (Box[int], "Box"),
        (dict, ""),
        (dict[str, int], ""),
        (bytes, ""),
        (Any, ""),
        (int | str, ""),
    ],
)
def test_when_a_type_is_named_then_only_those_that_mean_something_have_a_name(
    kind: Any, name: str
) -> None:
    assert type_name_of(kind) == name


class Outer:
    class Inner: ...


def test_when_a_class_is_nested_then_its_name_says_in_what() -> None:
    class Local: ...

    assert type_name_of(Outer.Inner) == "Outer.Inner"
    assert type_name_of(Local) == "Local"


@pytest.mark.parametrize("kind", [bytes, str, dict, PlaceOrder])
def test_when_a_body_was_left_elsewhere_then_its_message_is_not_taken_for_an_empty_one(
    kind: type,
) -> None:
    """R35, T11: rejected with its claim, never handled as nothing."""
    claimed = Message(body=b"", content_type="text/plain", headers={CLAIM: "{}"})

    with pytest.raises(MappingError, match="its body is not here"):
        Mapper().read(claimed, Subscription(queue="q", request=kind))
