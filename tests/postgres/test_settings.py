"""Settings of the Postgres gateway, from arguments and from URLs."""

from __future__ import annotations

import pickle

import pytest

from gateways.postgres import Listen, PostgresGateway, PostgresSettings, from_url
from pump.errors import ConfigurationError

FULL = (
    "postgresql://sh%40p:s3%2Fcret@db1:5433,db2/orders?schema=queues&max_connections=3&listen=off"
    "&poll=0.2&sslmode=verify-full&application_name=shop&request_timeout=5"
)


def test_when_a_url_says_everything_then_so_do_the_settings() -> None:
    settings = PostgresSettings.from_url(FULL)

    assert settings == PostgresSettings(
        hosts=("db1:5433", "db2"),
        database="orders",
        user="sh@p",
        password="s3/cret",
        schema="queues",
        max_connections=3,
        listen=Listen.OFF,
        poll_s=0.2,
        ssl_mode="verify-full",
        application_name="shop",
        request_timeout_s=5.0,
    )
    given = settings.connection
    assert (given["host"], given["port"], given["password"]) == ("db1,db2", "5433,5432", "s3/cret")
    assert given["target_session_attrs"] == "read-write"


def test_when_the_login_is_repeated_for_each_host_then_no_host_is_dropped() -> None:
    settings = PostgresSettings.from_url("postgres://shop:s3cret@db1,shop:s3cret@db2:5433/orders")

    assert settings.hosts == ("db1", "db2:5433")
    assert settings.user == "shop"
    assert settings.password == "s3cret"


def test_when_a_url_says_little_then_libpq_decides_the_rest() -> None:
    given = PostgresSettings.from_url("postgres://db/").connection

    assert (given["host"], given["port"], given["dbname"]) == ("db", "5432", "postgres")
    assert not given.keys() & {"user", "password", "sslmode", "target_session_attrs"}


def test_when_a_folder_is_named_then_its_socket_is_used() -> None:
    settings = PostgresSettings.from_url("postgres:///shop?host=/run/postgresql")

    assert settings.connection["host"] == "/run/postgresql"
    assert settings.target == "postgres:///run/postgresql/shop"


def test_when_an_address_has_colons_then_it_stands_in_brackets() -> None:
    given = PostgresSettings.from_url("postgres://[::1]:5433,[::2]/shop").connection

    assert (given["host"], given["port"]) == ("::1,::2", "5433,5432")


@pytest.mark.parametrize(
    "url",
    [
        "postgres://db:port/shop",
        "postgres://db:0/shop",
        "postgres://db/shop/more",
        "postgres://db/shop?schema=Shop",
        "postgres://db/shop?schema=shop;drop",
        "postgres://db/shop?max_connections=0",
        "postgres://db/shop?max_connections=many",
        "postgres://db/shop?listen=perhaps",
        "postgres://db/shop?request_timeout=0",
        "postgres://db/shop?poll=nan",
        "postgres://db/shop?unheard=of",
    ],
)
def test_when_a_url_cannot_work_then_it_is_named(url: str) -> None:
    with pytest.raises(ConfigurationError):
        from_url(url)


def test_when_settings_are_shown_then_the_password_is_not() -> None:
    gateway = PostgresGateway(PostgresSettings.from_url(FULL))

    assert "s3" not in repr(gateway)


def test_when_settings_travel_to_another_process_then_they_work_there() -> None:
    settings = PostgresSettings.from_url(FULL)

    assert pickle.loads(pickle.dumps(settings)) == settings
