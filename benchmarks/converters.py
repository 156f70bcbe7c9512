"""Which library should turn requests into bytes and back? µs a call, best of several runs.

    python -m benchmarks.converters

cattrs runs at its fastest (`detailed_validation=False`) except where a row says otherwise.
Ratios are to msgspec in the same run, so they hold on any machine.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any
from uuid import UUID

import attrs
import msgspec
from cattrs.preconf import json as cattrs_json, msgspec as cattrs_msgspec

from pump.mapping import Mapper
from pump.message import Message
from pump.processor import Command, Event

CALLS, ROUNDS = 1_000, 100


class PlaceOrder(Command):
    order_id: str
    customer: str
    quantity: int
    price: float
    express: bool = False


class Line(Event):
    sku: str
    quantity: int
    price: Decimal


class OrderPlaced(Event):
    order_id: UUID
    placed_at: datetime
    lines: list[Line]
    total: Decimal
    note: str | None = None


class Tidied(Command):
    """As flat as PlaceOrder, but its converter sends it the careful way, through cattrs."""

    order_id: str = attrs.field(converter=str.strip)
    customer: str
    quantity: int
    price: float
    express: bool = False


FLAT = PlaceOrder("o-1842", "c-77", 3, 19.5, True)
NESTED = OrderPlaced(
    UUID("5f2b6f5e-0d8f-4f4e-9a59-0a4f2d7d8a11"),
    datetime(2026, 11, 16, 9, 30, tzinfo=UTC),
    [Line(f"sku-{n}", n + 1, Decimal("9.99")) for n in range(5)],
    Decimal("149.85"),
)
TIDIED = Tidied("o-1842", "c-77", 3, 19.5, True)

Pair = tuple[Callable[[Any], Any], Callable[[Any], Any]]


def through_msgspec(kind: type) -> Pair:
    return msgspec.json.Encoder().encode, msgspec.json.Decoder(kind).decode


def through_cattrs(kind: type, module: Any, *, detailed: bool = False) -> Pair:
    converter = module.make_converter(detailed_validation=detailed)
    # The preconfigured converters leave these to the user.
    converter.register_unstructure_hook(Decimal, str)
    converter.register_structure_hook(Decimal, lambda value, _: Decimal(value))
    converter.register_unstructure_hook(UUID, str)
    converter.register_structure_hook(UUID, lambda value, _: UUID(value))
    return converter.dumps, lambda body: converter.loads(body, kind)


def through_the_mapper(kind: type) -> Pair:
    mapper = Mapper(types=[kind])

    def decode(message: Message) -> Any:
        return mapper.decode(message, kind)

    return mapper.encode, decode


def candidates(kind: type) -> Iterator[tuple[str, Pair]]:
    yield "msgspec", through_msgspec(kind)
    if find_spec("orjson"):
        from cattrs.preconf import orjson as cattrs_orjson

        yield "cattrs + orjson", through_cattrs(kind, cattrs_orjson)
        yield "cattrs + orjson, detailed", through_cattrs(kind, cattrs_orjson, detailed=True)
    else:
        print("(cattrs + orjson left out: orjson is not installed)")
    yield "cattrs + json", through_cattrs(kind, cattrs_json)
    yield "cattrs + msgspec", through_cattrs(kind, cattrs_msgspec)
    yield "Mapper (to and from a Message)", through_the_mapper(kind)


def careful() -> Iterator[tuple[str, Pair]]:
    yield "cattrs + msgspec", through_cattrs(Tidied, cattrs_msgspec)
    yield "Mapper (careful, through cattrs)", through_the_mapper(Tidied)


def microseconds(functions: Sequence[Callable[[], Any]]) -> list[float]:
    """Best time of each. They take turns, so a busy moment of the machine hits them all."""
    best = [float("inf")] * len(functions)
    for _ in range(ROUNDS):
        for index, function in enumerate(functions):
            best[index] = min(best[index], timeit.timeit(function, number=CALLS) / CALLS * 1e6)
    return best


def measure(title: str, request: Any, rows: Iterator[tuple[str, Pair]]) -> None:
    names, functions = [], []
    for name, (encode, decode) in rows:
        written = encode(request)
        assert decode(written) == request, name
        names.append(name)
        functions += [partial(encode, request), partial(decode, written)]
    times = microseconds(functions)
    print(f"\n{title:32} encode µs  ratio  decode µs  ratio")
    for name, encoding, decoding in zip(names, times[::2], times[1::2], strict=True):
        ratios = encoding / times[0], decoding / times[1]
        print(f"{name:32} {encoding:9.2f} {ratios[0]:6.1f} {decoding:10.2f} {ratios[1]:6.1f}")


def main() -> None:
    names = ("msgspec", "cattrs", "attrs", "orjson")
    print(" · ".join(f"{name} {version(name)}" for name in names if find_spec(name)))
    measure("flat, 5 fields", FLAT, candidates(PlaceOrder))
    measure("nested, 5 lines", NESTED, candidates(OrderPlaced))
    measure("flat, with an attrs converter", TIDIED, careful())
    [message_alone] = microseconds([partial(Message, body=b"", created_at_s=1.0)])
    print(f"\nof Mapper's encode, making the Message and its id: {message_alone:.2f} µs")


if __name__ == "__main__":
    main()
