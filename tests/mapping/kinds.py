"""Requests of every kind that the tests map."""

import dataclasses
import enum
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypedDict, TypeVar
from uuid import UUID

import attrs
import msgspec
import pydantic

from pump.processor import Command, Event

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class PlaceOrder(Command):
    order_id: str
    quantity: int = 1


class Line(Event):
    sku: str
    price: Decimal


class OrderPlaced(Event):
    order_id: UUID
    placed_at: datetime
    due: date
    lines: list[Line]
    colour: Colour
    seal: bytes
    window: timedelta
    note: str | None = None
    reference: int | str = 0
    extra: dict[str, Any] = attrs.field(factory=dict)


class Box(Command, Generic[T]):
    item: T


class Renamed(Command):
    __message_type__ = "orders.renamed"
    a: int = 0


class RenamedChild(Renamed):
    b: int = 0


class Positive(Command):
    quantity: int = attrs.field(validator=attrs.validators.gt(0))


class Secretive(Command):
    token: str = attrs.field(validator=attrs.validators.matches_re("[a-z]+"))
    colour: Colour = Colour.RED


class Fussy(Command):
    """Fails while it is made, with an error that is no ValueError."""

    a: int

    def __attrs_post_init__(self) -> None:
        raise ZeroDivisionError("a")


class Tidied(Command):
    """Everything msgspec would treat otherwise than attrs does."""

    name: str = attrs.field(converter=str.strip)
    quantity: int = attrs.field(default=1, validator=attrs.validators.gt(0))
    _secret: str = "none"
    size: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "size", len(self.name))


class HandMade(Command):
    a: int

    def __init__(self, a: int) -> None:
        self.__attrs_init__(a * 2)  # type: ignore[attr-defined]


class Cat(Event):
    purrs: bool


class Dog(Event):
    barks: bool


class Pets(Command):
    pets: list[Cat | Dog]
    tidied: Tidied | None = None
    by_name: dict[str, Tidied] = attrs.field(factory=dict)


class Circle(Event):
    kind: Literal["circle"] = "circle"


class Square(Event):
    kind: Literal["square"] = "square"


class Drawing(Command):
    shape: Circle | Square


class Tree(Command):
    name: str = attrs.field(default="", converter=str.strip)
    children: "list[Tree]" = attrs.field(factory=list)


@attrs.frozen(kw_only=True)
class Slotted:
    a: int
    b: list[int] = attrs.field(factory=list)


@dataclasses.dataclass(frozen=True)
class Shipped:
    order_id: str
    at: datetime
    _private: int = 1

    def __post_init__(self) -> None:
        if not self.order_id:
            raise ValueError("order_id must not be empty")


@dataclasses.dataclass
class HandMadeData:
    a: int

    def __init__(self, a: int) -> None:
        self.a = abs(a)


class Struct(msgspec.Struct, frozen=True):
    a: int
    when: datetime


class Model(pydantic.BaseModel):
    when: datetime
    quantity: int = pydantic.Field(alias="Quantity", gt=0)
    children: list["Model"] = []


class Holder(Command):
    model: Model


class Pair(NamedTuple):
    a: int
    b: str


class Row(TypedDict, total=False):
    a: int


class Opaque:
    """A class that nothing can read or write."""


class HoldsOpaque(Command):
    opaque: Opaque


class StructOfTidied(msgspec.Struct):
    tidied: Tidied


class Bounded(Command):
    age: Annotated[int, msgspec.Meta(ge=0, le=150)]


NOON = datetime(2026, 11, 16, 12, 0, 0, 123456, tzinfo=UTC)

REQUESTS = [
    PlaceOrder("o-1", 3),
    OrderPlaced(
        order_id=UUID(int=7),
        placed_at=NOON,
        due=date(2026, 11, 17),
        lines=[Line("s", Decimal("9.990"))],
        colour=Colour.BLUE,
        seal=b"\x00\xff",
        window=timedelta(minutes=90),
        reference="r",
        extra={"a": [1, None, {"b": 2.5}]},
    ),
    Renamed(1),
    Positive(3),
    Tidied("  ann ", 2, secret="s"),  # type: ignore[call-arg]
    Pets([Cat(True), Dog(False)], Tidied("x"), {"rex": Tidied("rex", 5)}),
    Drawing(Square()),
    Tree("a", [Tree("b"), Tree("c", [Tree()])]),
    Slotted(a=1, b=[2]),
    Shipped("o-1", NOON, 5),
    HandMadeData(-4),
    Struct(1, NOON),
    Model(when=NOON, Quantity=3, children=[Model(when=NOON, Quantity=1)]),
    Holder(Model(when=NOON, Quantity=3)),
    Pair(1, "x"),
    Bounded(30),
]
