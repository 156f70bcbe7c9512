"""Arrays in the server's binary format."""

from __future__ import annotations

import struct

from pump.postgres.arrays import bigints, doubles, ints, octets, octets_or_none, texts


def test_when_values_are_put_into_an_array_then_each_has_its_length_and_null_has_none() -> None:
    data = octets([b"ab", None, b""]).data

    assert struct.unpack_from("!iiIii", data) == (1, 1, 17, 3, 1)
    assert data[20:] == b"\0\0\0\2ab" + b"\xff\xff\xff\xff" + b"\0\0\0\0"


def test_when_an_array_is_empty_then_it_has_no_dimension() -> None:
    for array in (texts([]), octets([]), bigints([]), ints([]), doubles([])):
        assert struct.unpack("!iiI", array.data)[0] == 0


def test_when_all_are_null_then_so_is_the_array() -> None:
    assert octets_or_none([None, None]) is None
    assert octets_or_none([None, b"x"]) is not None
