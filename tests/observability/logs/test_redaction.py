from __future__ import annotations

import datetime
import decimal
import functools
import uuid
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import attrs
import msgspec
import pytest
from hypothesis import given, strategies as st

from pump import Command, Message
from pump.observability.redaction import REDACTED, redact, redact_arguments, scrub, shown

SECRET = "hunter2hunter2"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"


@pytest.mark.parametrize(
    "text",
    [
        f"amqp://guest:{SECRET}@broker:5672/",
        f"cannot reach nats://user:{SECRET}@host: refused",
        f"postgres://user:p@{SECRET}@host/db",
        f"https://{SECRET}@host/",
        f"password={SECRET}",
        f"db_password = '{SECRET}'; user=ann",
        f"Password: {SECRET}",
        f'{{"api_key": "{SECRET} and more {SECRET}", "n": 1}}',
        f'body was "{{\\"password\\": \\"{SECRET}\\"}}"',
        f"Greet(name='Ann', token='{SECRET}')",
        f"secret=b'{SECRET}'",
        f"Authorization: Basic {SECRET}==",
        f"{{'Authorization': 'Bearer {SECRET}', 'Host': 'x'}}",
        f"Proxy-Authorization: Digest username=ann, response={SECRET}",
        f"Cookie: a=1; session={SECRET}",
        f"sent Bearer {SECRET} to the server",
        f"Endpoint=sb://ns/;SharedAccessKeyName=root;SharedAccessKey={SECRET}=",
        f"AccountKey={SECRET};EndpointSuffix=x",
        f"https://host/q?X-Amz-Security-Token={SECRET}&X-Amz-Date=1",
        f"AWS_SECRET_ACCESS_KEY={SECRET}",
        f"<Password>{SECRET}</Password>",
        f"line one\npassword={SECRET}\nline three",
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n{SECRET}\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_when_a_text_quotes_credentials_then_they_are_cut_out(text: str) -> None:
    """R57."""
    told = scrub(text)

    assert SECRET not in told
    assert REDACTED in told


@pytest.mark.parametrize(
    "secret",
    ["AKIAIOSFODNN7EXAMPLE", "ASIAIOSFODNN7EXAMPLE", JWT, "R" * 43 + "="],
    ids=["AWS key id", "AWS session key id", "JSON web token", "32 bytes in base64"],
)
def test_when_a_text_holds_what_looks_like_a_key_then_it_is_cut_out(secret: str) -> None:
    """R57."""
    assert scrub(f"found {secret}, as expected") == f"found {REDACTED}, as expected"


def test_when_a_token_stands_behind_a_hyphen_then_it_is_cut_out_too() -> None:
    """R57."""
    assert scrub(f"session-{JWT} ended") == f"session-{REDACTED} ended"


@pytest.mark.parametrize("unit", ["eyJ-", "eyJaaaaaaaa-", "password-", "cookie:", "\\"])
def test_when_a_stranger_writes_a_text_to_be_stuck_on_then_it_is_read_in_no_time(unit: str) -> None:
    """R61: the loop waits meanwhile; a pattern that begins anew inside of itself takes minutes."""
    text = f"eyJaaaaaaaa.{unit * (500_000 // len(unit))}"

    assert scrub(text)


@pytest.mark.parametrize(
    "text",
    [
        "orders",
        "01989899-7a6b-7000-8000-0123456789ab",
        "cannot reach http://127.0.0.1:4566/000000000000/orders: refused",
        "3 of 4 keys were retired; the active key_id is k-2024",
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to the pair",
        "no handler is registered for PlaceOrder; add one with app.register(PlaceOrder, Handler)",
        "a" * 64,
        "ann@example.org wrote",
        "",
    ],
)
def test_when_a_text_holds_no_credentials_then_it_is_left_alone(text: str) -> None:
    assert scrub(text) == text


def test_when_a_url_holds_a_password_then_the_rest_of_it_is_still_said() -> None:
    """R61: the error must still say where."""
    assert scrub("amqp://ann:pw@broker:5672/x") == f"amqp://{REDACTED}@broker:5672/x"


@given(st.text(), st.sampled_from(["password", "api-key", "Token", "secret"]), st.text())
def test_whatever_stands_around_it_a_named_secret_is_cut_out(
    before: str, name: str, after: str
) -> None:
    """R57."""
    assert SECRET not in scrub(f"{before} {name}={SECRET} {after}")


class Greet(Command):
    name: str


@attrs.define
class Plain:
    name: str


class Struct(msgspec.Struct):
    name: str


class Pair(NamedTuple):
    name: str


class Colour(Enum):
    RED = 1


class Talking:
    def __repr__(self) -> str:
        return f"Talking(password={SECRET!r}, size=3)"


@pytest.mark.parametrize("kind", [Greet, Plain, Struct, Pair])
def test_when_an_object_holds_data_then_only_its_type_is_shown(kind: Any) -> None:
    """R61: a request is a body in another form."""
    assert shown(kind(name=SECRET)) == f"<{kind.__name__}>"
    assert shown([{"order": kind(name=SECRET)}]) == [{"order": f"<{kind.__name__}>"}]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (3, 3),
        (2.5, 2.5),
        (True, True),
        (None, None),
        ("orders", "orders"),
        (b"four", "<4 bytes>"),
        (bytearray(b"four"), "<4 bytes>"),
        (Colour.RED, "Colour.RED"),
        (decimal.Decimal("1.50"), "1.50"),
        (datetime.timedelta(seconds=90), "0:01:30"),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Path("spill.db"), "spill.db"),
        (Greet, "Greet"),
        (shown, "shown"),
        (datetime, "datetime"),
        ((1, "a"), [1, "a"]),
        ({"n": {1}}, {"n": [1]}),
        ({3: "x"}, {"3": "x"}),
        (ValueError("no"), "ValueError: no"),
        (Talking(), f"Talking(password={REDACTED}, size=3)"),
        (functools.partial(shown, b"body"), "<partial>"),
        (list(range(102)), [*range(100), "… and 2 more"]),
    ],
)
def test_what_is_shown_of_a_value(value: object, told: object) -> None:
    assert shown(value) == told


def test_when_data_is_nested_without_end_then_showing_it_ends() -> None:
    value: list[Any] = []
    value.append(value)

    assert "<list>" in str(shown(value))


@pytest.mark.parametrize(
    "name",
    [
        *("password", "db_password", "passwd", "pwd", "passphrase", "client_secret", "token"),
        *("access_token", "Authorization", "auth", "api_key", "apiKey", "X-Api-Key"),
        *("private_key", "encryption_key", "credentials", "connection_string", "dsn", "Set-Cookie"),
        *("body", "request_body", "payload", "headers", "key_material", "signature"),
    ],
)
def test_when_a_field_is_called_like_a_secret_then_its_value_is_not_printed(name: str) -> None:
    """R57, R61: at any depth."""
    line = redact(None, "info", {"event": "got", name: SECRET, "deep": [{"er": {name: SECRET}}]})

    assert line[name] == REDACTED
    assert line["deep"] == [{"er": {name: REDACTED}}]


def test_when_a_field_is_called_otherwise_then_it_is_printed() -> None:
    fields = {"event": "got", "key_id": "k1", "tokens": 512, "body_bytes": 12, "routing_key": "a.b"}

    assert redact(None, "info", dict(fields)) == fields


def test_when_a_password_is_a_number_then_it_is_not_printed_either() -> None:
    """R57."""
    assert redact(None, "info", {"password": 1234, "pin": 1234}) == {
        "password": REDACTED,
        "pin": REDACTED,
    }


def test_when_a_message_is_logged_then_its_body_and_headers_are_not() -> None:
    """R61."""
    message = Message(body=SECRET.encode(), headers={"h": SECRET})

    assert SECRET not in str(redact(None, "info", {"event": message, "message": message}))


def test_when_objects_are_formatted_into_a_text_then_they_are_named_by_their_type() -> None:
    """R61."""
    line = redact_arguments(None, "info", {"positional_args": (Greet(name=SECRET), 3)})

    assert line["positional_args"] == ("<Greet>", 3)
