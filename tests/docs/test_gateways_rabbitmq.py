"""docs/gateways-rabbitmq.md repeats the code in several tables; none may drift from it."""

from __future__ import annotations

import re
from pathlib import Path

import attrs
import pytest

from gateways.rabbitmq import RabbitMQSettings
from gateways.rabbitmq.topology import _OPTIONS
from pump import errors
from pump.errors import ConfigurationError

from .markdown import rows_between, rows_under

PAGE = Path(__file__).resolve().parents[2] / "docs" / "gateways-rabbitmq.md"


def code_of(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_every_key_of_the_url_is_documented() -> None:
    """The error of an unknown key lists the known ones, and so does the page."""
    with pytest.raises(ConfigurationError) as refused:
        RabbitMQSettings.from_url("amqp://broker?unheard-of=1")
    known = refused.value.remedy.split("known: ")[1].split(", ")

    documented = [code_of(row[0])[0] for row in rows_under(PAGE, "## Where it is, and as whom")]

    assert set(known) <= set(documented)


def test_every_setting_is_documented_with_its_default() -> None:
    rows = rows_between(PAGE, "rabbitmq settings")

    documented = {code_of(row[0])[0]: code_of(row[1])[0] for row in rows}

    assert documented == {
        field.name: repr(field.default) for field in attrs.fields(RabbitMQSettings)
    }


def test_every_option_is_documented() -> None:
    documented = [code_of(row[0])[0] for row in rows_under(PAGE, "### Options")]

    assert sorted(documented) == sorted(_OPTIONS)


def test_every_documented_error_exists() -> None:
    documented = [code_of(row[0])[0] for row in rows_under(PAGE, "## When something fails")]

    assert len(documented) >= 10
    assert all(hasattr(errors, name) for name in documented)
