"""Options in the query of a URL: the field's type, or words that name the option (R56, R57)."""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum
from typing import Any
from urllib.parse import urlencode

import attrs
import pytest
from hypothesis import given, strategies as st

from pump.errors import ConfigurationError
from pump.secret import Secret, optional_secret
from pump.url_options import login_and_hosts, url_options

SHOWN = "boat://host"


class Sail(StrEnum):
    JIB = "jib"
    MAIN = "main"


@attrs.frozen(kw_only=True)
class Engine:
    power: int = 5
    warm_up_s: float = 1.0


@attrs.frozen(kw_only=True)
class Boat:
    name: str | None = None
    key: Secret | None = attrs.field(default=None, converter=optional_secret, repr=False)
    is_tls: bool = False
    length: float = 9.5
    sail: Sail = Sail.JIB
    engine: Engine | None = None


FIELDS = {
    "name": "name",
    "key": "key",
    "tls": "is_tls",
    "length": "length",
    "sail": "sail",
    "power": "engine.power",
    "warm_up": "engine.warm_up_s",
}


def read(query: str) -> dict[str, Any]:
    return url_options(query, SHOWN, Boat, FIELDS)


def refusal(query: str) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as refused:
        read(query)
    return refused.value


def test_when_nothing_is_given_then_nothing_is_set() -> None:
    assert read("") == {}


def test_when_options_are_given_then_their_fields_have_values_of_their_types() -> None:
    found = read("name=null&key=k%26&tls=true&length=3&sail=main&power=7&warm_up=0.5")

    assert found == {
        "name": "null",
        "key": "k&",
        "is_tls": True,
        "length": 3.0,
        "sail": Sail.MAIN,
        "engine": {"power": 7, "warm_up_s": 0.5},
    }
    assert isinstance(found["length"], float)


def test_when_an_option_is_given_twice_then_the_last_counts() -> None:
    assert read("power=1&power=2") == {"engine": {"power": 2}}


def test_when_an_option_is_empty_then_it_is_not_taken_for_missing() -> None:
    assert read("name=") == {"name": ""}
    assert "power='': use a whole number" in str(refusal("power="))


@pytest.mark.parametrize(
    ("query", "remedy"),
    [
        ("tls=yes", "tls='yes': use true or false"),
        ("tls=null", "tls='null': use true or false"),
        ("length=long", "length='long': use a number"),
        ("power=many", "power='many': use a whole number"),
        ("power=1.5", "power='1.5': use a whole number"),
        ("power=" + "9" * 5_000, "use a whole number"),
        ("warm_up=soon", "warm_up='soon': use a number of seconds"),
        ("sail=spinnaker", "sail='spinnaker': use jib or main"),
        ("colour=red&age=3", "unknown age, colour; known: name, key, tls"),
    ],
)
def test_when_an_option_does_not_fit_then_it_is_named_with_the_remedy(
    query: str, remedy: str
) -> None:
    """R56."""
    refused = refusal(query)

    assert (refused.field, refused.value) == ("gateway", SHOWN)
    assert remedy in refused.remedy


@pytest.mark.parametrize("query", ["s3cret@host", "power=s3cret@host", "tls=s3cret@host?tls=true"])
def test_when_a_password_has_a_question_mark_then_its_rest_is_not_repeated(query: str) -> None:
    """R57: it ends the host, and what follows looks like options."""
    refused = refusal(query)

    assert "s3cret" not in f"{refused} {refused!r} {refused.__cause__!r}"


@given(st.text(max_size=30), st.sampled_from(sorted(FIELDS)))
def test_when_an_option_is_any_text_then_it_is_taken_or_refused(text: str, option: str) -> None:
    with suppress(ConfigurationError):
        assert len(read(urlencode({option: text}))) == 1


@pytest.mark.parametrize(
    ("netloc", "found"),
    [
        ("", ("", "")),
        ("one,two", ("", "one,two")),
        ("ada:pw@one,two", ("ada:pw", "one,two")),
        ("ada:pw@one,ada:pw@two", ("ada:pw", "one,two")),
        ("ada:pw@one,two,ada:pw@three", ("ada:pw", "one,two,three")),
        ("ada:p@w@one,two", ("ada:p@w", "one,two")),
        ("ada:p,w@one", ("ada:p,w", "one")),
    ],
)
def test_when_a_login_stands_before_hosts_then_none_of_either_is_lost(
    netloc: str, found: tuple[str, str]
) -> None:
    assert login_and_hosts(netloc, SHOWN) == found


def test_when_hosts_have_logins_of_their_own_then_that_is_refused_without_them() -> None:
    """R57."""
    with pytest.raises(ConfigurationError, match="one login") as refused:
        login_and_hosts("ada:s3cret@one,bob:s3cret@two", SHOWN)

    assert "s3cret" not in str(refused.value)
