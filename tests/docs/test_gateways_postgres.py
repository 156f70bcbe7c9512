"""docs/gateways-postgres.md repeats the code in several tables; none of them may drift from it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import attrs
import pytest

import gateways.postgres
from gateways.postgres import PostgresSettings
from gateways.postgres.consumer import MAX_BODY, MAX_SEND_BYTES, MAX_SEND_COUNT
from pump import errors as pump_errors
from pump.errors import ConfigurationError, PumpError
from pump.postgres.database import LOWEST_SERVER, PACKAGES

from .markdown import rows_between, rows_under
from .test_gateways_sqs import code_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "gateways-postgres.md"


def error_names() -> set[str]:
    """The errors that the gateway's modules name."""
    modules = [
        import_module(f"gateways.postgres.{each.name}")
        for each in iter_modules(gateways.postgres.__path__)
    ]
    return {
        name
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, PumpError)
    }


def test_every_key_of_the_url_is_documented() -> None:
    with pytest.raises(ConfigurationError) as refused:
        PostgresSettings.from_url("postgres://?unheard-of=1")
    _, _, known = refused.value.remedy.partition("known: ")

    rows = rows_under(PAGE, "## Where it is, and as whom")

    assert [code_of(key)[0] for key, _, _ in rows] == known.split(", ")
    for _, setting, _ in rows:
        name = code_of(setting)[0].removeprefix("PostgresSettings.")
        assert name in attrs.fields_dict(PostgresSettings)


def test_every_setting_is_documented_with_its_default() -> None:
    documented = {
        code_of(name)[0]: code_of(default)[0]
        for name, default, _ in rows_between(PAGE, "postgres settings")
    }

    declared = {field.name: repr(field.default) for field in attrs.fields(PostgresSettings)}
    assert documented == declared


def test_every_error_of_the_gateway_is_documented_with_its_remedy() -> None:
    rows = rows_under(PAGE, "## When something fails")
    documented = {name for error, _, _ in rows for name in code_of(error)}

    assert error_names() - documented == {"PumpError", "GatewayError"}
    assert documented <= error_names() | set(vars(pump_errors))
    assert all(meaning and remedy for _, meaning, remedy in rows)


def test_every_number_of_the_code_that_the_text_repeats_is_right() -> None:
    text = " ".join(PAGE.read_text().split())

    assert f"PostgreSQL {LOWEST_SERVER // 10_000} or later" in text
    lowest, _, _ = PACKAGES.versions["psycopg"].removeprefix(">=").partition(",")
    assert f"psycopg {lowest} or later" in text
    count, size = f"{MAX_SEND_COUNT:,}", f"{MAX_SEND_BYTES >> 20} MiB"
    assert f"takes up to {count} messages or {size}" in text
    assert f"up to {MAX_BODY >> 20} MiB each" in text
