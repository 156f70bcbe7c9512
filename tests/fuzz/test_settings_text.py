"""What people write on command lines and in the environment: a value, or words that help."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import click
from hypothesis import strategies as st

from pump.cli.options import counted_pair, duration, pair, telemetry_choice
from pump.cli.send import SendOptions, _body_of, _lines_of
from pump.clock import SYSTEM_CLOCK, format_duration, parse_duration
from pump.crypto.sources import parse_ring
from pump.errors import ConfigurationError
from pump.exit_codes import Failure
from pump.gateway_url import gateway_from_url, without_secrets
from pump.health.options import HealthOptions
from pump.stores.ledger.reading import locate

from .exploring import Effort, Target, each_of, explore
from .mutations import any_text, hostile_values, mutated

URLS = [
    *("memory://", "memory://shared", "local://", "local:///tmp/queues?max_bytes=4096"),
    "sqs://eu-west-1?endpoint=http%3A%2F%2F127.0.0.1%3A4566&max_connections=10&transport=boto3",
    *("sqs://?claim_bucket=b&claim_prefix=p&claim_threshold=1000&owner=123456789012", "nats://h:1"),
    "amqp://user:word@host:5672/vhost?heartbeat=5",
]
DURATIONS = ["100ms", "5s", "2m", "1h30m", "7d", "0", " 1.5 H ", "1d 2h"]
LEDGERS = ["ledger.db", "sqlite:///var/ledger.db?keep=30d", "parquet://ledger?detail=no&keep=1h"]
ADDRESSES = ["8080", "0.0.0.0:8080", "[::1]:8080", "unix:/run/pump.sock", "localhost:0"]
RING = "# keys\n2026-02:q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA=\nb:" + "A" * 43
LETTER = SendOptions(
    queue="q",
    type="",
    headers={},
    group=None,
    delay=timedelta(0),
    deduplication_id=None,
    correlation_id=None,
    content_type=None,
)
LINES = ['{"id": 1}\n{"id": 2}\r\n\n[3]', "[1, 2", "@", "null"]


def there_and_back(text: str) -> None:
    seconds = parse_duration(text).total_seconds()
    assert parse_duration(format_duration(seconds)).total_seconds() >= 0


def name_gateway(url: str) -> None:
    """R57: what is refused is shown without what may be a secret."""
    assert "hunter2" not in without_secrets("amqp://user:hunter2@" + url)
    gateway_from_url(url, SYSTEM_CLOCK)


def send_lines(source: str) -> None:
    """As `pump send --lines` does; a file's name is not tried."""
    text = source.lstrip("@-")
    for body in _lines_of(text):
        LETTER.message(body)
    LETTER.message(_body_of(text))


def encodable(text: str) -> bool:
    """Whether the system could have handed it over: of surrogates, only bytes' stand-ins."""
    try:
        text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return False
    return "\0" not in text


# What a process is given: bytes that are not UTF-8 become surrogates, and no NUL.
given = any_text.filter(encodable)
# click says a ValueError of an option's type in its own words.
usage = (click.BadParameter, ValueError)
TARGETS = [
    Target(
        name="duration",
        inputs=mutated(DURATIONS) | any_text,
        feed=there_and_back,
        refusals=(ValueError,),
        share=2,
    ),
    Target(name="duration option", inputs=mutated(DURATIONS), feed=duration, refusals=usage),
    Target(name="seconds", inputs=st.floats(0, 1e15), feed=format_duration),
    Target(
        name="gateway URL",
        inputs=mutated(URLS) | any_text,
        feed=name_gateway,
        refusals=(ConfigurationError,),
        share=0.7,
    ),
    Target(
        name="lines to send",
        inputs=mutated(LINES).filter(encodable) | given | hostile_values.map(json.dumps),
        feed=send_lines,
        refusals=(Failure,),
        share=2,
    ),
    Target(name="name=value", inputs=mutated(["a=b", "=", "a"]) | given, feed=pair, refusals=usage),
    Target(
        name="name=number",
        inputs=mutated(["a=5", "a=0"]) | given,
        feed=counted_pair,
        refusals=usage,
    ),
    Target(
        name="ledger",
        inputs=mutated(LEDGERS).filter(encodable) | given,
        feed=locate,
        refusals=(ConfigurationError,),
        share=2,
    ),
    Target(
        name="health address",
        inputs=mutated(ADDRESSES).filter(encodable) | given,
        feed=lambda text: HealthOptions.from_addresses(text, text),
        refusals=(ConfigurationError,),
        share=2,
    ),
    Target(
        name="telemetry",
        inputs=st.lists(mutated(["otlp", "prometheus:[::1]:9464", "off"]) | given, max_size=2),
        feed=telemetry_choice,
        refusals=(ConfigurationError,),
    ),
    Target(
        name="key ring",
        inputs=mutated([RING]) | any_text,
        feed=lambda text: parse_ring(text, source="ring"),
        refusals=(ConfigurationError,),
        share=2,
    ),
]


@each_of(TARGETS)
def test_when_a_setting_is_anything_then_it_is_taken_or_refused_with_a_remedy(
    target: Target, effort: Effort
) -> None:
    """R56."""
    explore(target, effort)


def test_when_a_refused_key_ring_is_put_into_words_then_no_key_is_in_them(effort: Effort) -> None:
    """R69: where an entry is wrong, what looks like an id may be the key."""

    def feed(text: str) -> None:
        words: Any = ""
        try:
            parse_ring(text, source="ring")
        except ConfigurationError as error:
            words = f"{error} {error!r}"
        assert "q83vEjRWeJCrze8S" not in words

    explore(Target(name="ring", inputs=mutated([RING]), feed=feed, share=2), effort)
