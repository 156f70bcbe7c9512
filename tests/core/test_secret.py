"""Secrets are used, and shown by no text and no serialisation (R57)."""

from __future__ import annotations

import copy
import importlib
import json
import logging
import pickle
import pkgutil
import pprint
import typing
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import attrs
import cattrs
import msgspec
import pytest
import structlog
import yaml

import gateways
import pump.cli
from gateways.nats.settings import NatsSettings
from gateways.rabbitmq.settings import RabbitMQSettings
from gateways.s3 import S3Settings
from gateways.servicebus.settings import ServiceBusSettings
from gateways.sqs import AwsSettings, Credentials, SqsSettings
from pump import Secret
from pump.cli.settings import EnvironmentSettings
from pump.errors import ConfigurationError
from pump.serving import ServerOptions
from tests.together import together

WORD = "s3cr3t"
"""Each secret of these settings has it in it."""
_AWS = AwsSettings(
    region="eu-west-1",
    credentials=Credentials(
        access_key_id=f"AKIA{WORD}", secret_access_key=f"{WORD}/x", session_token=f"{WORD}+t"
    ),
)
SETTINGS: dict[str, Any] = {
    "aws": _AWS,
    "sqs": SqsSettings(aws=_AWS),
    "s3": S3Settings(bucket="b", aws=_AWS),
    "nats password": NatsSettings(user="u", password=WORD),
    "nats token": NatsSettings(token=WORD),
    "nats url": NatsSettings.from_url(f"nats://u:{WORD}@h:4222"),
    "rabbitmq": RabbitMQSettings(password=WORD),
    "rabbitmq url": RabbitMQSettings.from_url(f"amqp://u:{WORD}@h/"),
    "servicebus": ServiceBusSettings(namespace="n", key_name="k", key=WORD),
    "servicebus string": ServiceBusSettings.from_connection_string(
        f"Endpoint=sb://n.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey={WORD}="
    ),
    "environment": EnvironmentSettings.from_environment(
        {"PUMP_GATEWAY": f"amqp://u:{WORD}@h/", "AWS_SECRET_ACCESS_KEY": WORD}
    ),
    "server": ServerOptions(credentials={"AKIA": WORD}),
}


def _structlog(settings: Any) -> str:
    event = {"event": "x", "settings": settings, **attrs.asdict(settings)}
    texts = [
        structlog.processors.JSONRenderer()(None, "info", dict(event)),
        structlog.processors.LogfmtRenderer()(None, "info", dict(event)),
        structlog.dev.ConsoleRenderer(colors=False)(None, "info", dict(event)),
        structlog.processors.KeyValueRenderer()(None, "info", dict(event)),
    ]
    return "".join(map(str, texts))


def _as_yaml(settings: Any) -> str:
    try:
        return yaml.dump(attrs.asdict(settings))
    except (TypeError, yaml.YAMLError) as error:
        return str(error)


def _by_msgspec(settings: Any) -> str:
    return str(msgspec.to_builtins(attrs.asdict(settings), enc_hook=str))


WAYS: dict[str, Callable[[Any], str]] = {
    "repr": repr,
    "str": str,
    "format": lambda settings: f"{settings} {settings!r:>20}",
    "pprint": pprint.pformat,
    "logging": lambda settings: logging.LogRecord(
        "n", 20, "p", 1, "%s %r", (settings, attrs.asdict(settings)), None
    ).getMessage(),
    "json of asdict": lambda settings: json.dumps(attrs.asdict(settings), default=str),
    "json by repr": lambda settings: json.dumps(attrs.asdict(settings), default=repr),
    "astuple": lambda settings: json.dumps(attrs.astuple(settings), default=str),
    "fields": lambda settings: str(
        {f.name: getattr(settings, f.name) for f in attrs.fields(type(settings))}
    ),
    "deep copy": lambda settings: str(copy.deepcopy(attrs.asdict(settings))),
    "structlog": _structlog,
    "yaml": _as_yaml,
    "msgspec": _by_msgspec,
    "cattrs": lambda settings: json.dumps(cattrs.unstructure(settings), default=str),
}


def test_when_settings_are_written_down_then_their_secrets_are_not() -> None:
    """R57."""
    with together() as each:
        for (name, settings), (way, write) in product(SETTINGS.items(), WAYS.items()):
            with each(f"{name}, as {way}"):
                assert WORD not in write(settings)


def test_when_settings_are_pickled_then_they_work_in_the_other_process() -> None:
    """Spark's workers are given them so; whoever has the pickle has the secret."""
    with together() as each:
        for name, settings in SETTINGS.items():
            with each(name):
                octets = pickle.dumps(settings)
                assert pickle.loads(octets) == settings
                assert WORD.encode() in octets


def test_when_a_secret_is_asked_for_then_it_is_given() -> None:
    secret = Secret(WORD)

    assert secret.reveal() == WORD
    assert secret == Secret(WORD)
    assert secret == WORD
    assert {secret} == {Secret(WORD)}
    assert secret != Secret("other")
    assert secret != 7
    assert not Secret("")


@pytest.mark.parametrize(
    "show",
    [
        repr,
        str,
        "{:>30}".format,
        "%s".__mod__,
        lambda secret: str(copy.copy(secret)) + repr(copy.deepcopy(secret)),
        lambda secret: str(dir(secret)),
    ],
)
def test_when_a_secret_is_shown_then_nothing_of_it_is(show: Callable[[Secret], str]) -> None:
    assert WORD not in show(Secret(WORD))


@pytest.mark.parametrize("write", [json.dumps, msgspec.json.encode, yaml.dump, vars])
def test_when_a_serialiser_knows_no_secrets_then_it_refuses(write: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError) as caught:
        write(Secret(WORD))

    assert WORD not in str(caught.value)


def test_when_a_secret_is_no_text_then_that_is_refused_without_showing_it() -> None:
    with pytest.raises(TypeError) as caught:
        Secret(WORD.encode())  # type: ignore[arg-type]

    assert WORD not in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda wrong: Credentials(access_key_id=wrong, secret_access_key="x"),
        lambda wrong: Credentials(access_key_id="a", secret_access_key="x", session_token=wrong),
        lambda wrong: NatsSettings(token=wrong),
        lambda wrong: RabbitMQSettings(password=wrong),
        lambda wrong: ServiceBusSettings(namespace="n", key_name="k", key=wrong),
    ],
)
def test_when_settings_get_a_secret_that_is_no_text_then_the_field_is_named(
    make: Callable[[Any], object],
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make(WORD.encode())

    assert "Settings." in str(caught.value) or "Credentials." in str(caught.value)
    assert WORD not in str(caught.value)


def _modules() -> Iterator[str]:
    for package in (gateways, pump.cli):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if found.name.endswith("settings"):
                yield found.name


def test_when_a_settings_class_has_a_field_for_a_secret_then_it_is_of_that_type() -> None:
    """R57: for fields that are added, too."""
    words = ("password", "secret", "token", "passphrase", "credential_string")
    plain: list[str] = []
    for module in map(importlib.import_module, _modules()):
        for name, cls in vars(module).items():
            if not attrs.has(cls) or cls.__module__ != module.__name__:
                continue
            kinds = typing.get_type_hints(cls)
            plain += [
                f"{module.__name__}.{name}.{field.name}"
                for field in attrs.fields(cls)
                if any(word in field.name for word in words)
                and Secret not in (kinds[field.name], *typing.get_args(kinds[field.name]))
            ]

    assert plain == []
