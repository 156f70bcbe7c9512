from datetime import timedelta

import pytest

from pump.clock import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("100ms", 0.1),
        ("5s", 5),
        ("1.5s", 1.5),
        ("2m", 120),
        ("1h30m", 5_400),
        ("1h 30m", 5_400),
        ("7d", 604_800),
        ("2M", 120),
    ],
)
def test_a_duration_is_read_as_people_write_it(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "5", "s", "-5s", "5 apples", "5sm", "1e3s", "٣s" + "x"])
def test_when_it_is_no_duration_then_the_error_shows_how_to_write_one(text: str) -> None:
    with pytest.raises(ValueError, match="5s, 2m"):
        parse_duration(text)


def test_when_a_duration_is_absurd_then_it_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="fewer days"):
        parse_duration("99999999999d")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0ms"),
        (0.0421, "42ms"),
        (0.9999, "1.0s"),
        (3.21, "3.2s"),
        (59.99, "1m"),
        (61, "1m 1s"),
        (3_600, "1h"),
        (3_661, "1h 1m"),
        (90_000, "1d 1h"),
    ],
)
def test_a_duration_is_written_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
