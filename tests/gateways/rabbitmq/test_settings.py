"""Settings: by URL or by field, checked at once, without a secret in what they show."""

from __future__ import annotations

import pickle

import pytest

from gateways.rabbitmq import RabbitMQGateway, RabbitMQSettings, amqp, from_url
from pump.errors import ConfigurationError
from pump.gateway_url import without_secrets


def test_when_a_url_says_everything_then_so_do_the_settings() -> None:
    settings = RabbitMQSettings.from_url(
        "amqps://ann:p%40ss@broker:5555/my%2Fhost?heartbeat=5&name=billing&ca_file=/ca.pem"
        "&consumer_timeout=600&confirm_timeout=4&connect_timeout=3&max_body_bytes=1000"
    )

    assert settings == RabbitMQSettings(
        host="broker",
        port=5555,
        vhost="my/host",
        user="ann",
        password="p@ss",
        is_tls=True,
        ca_file="/ca.pem",
        name="billing",
        heartbeat_s=5,
        connect_timeout_s=3.0,
        confirm_timeout_s=4.0,
        consumer_timeout_s=600.0,
        max_body_bytes=1000,
    )


@pytest.mark.parametrize(("scheme", "port"), [("amqp", 5672), ("amqps", 5671)])
def test_when_a_url_says_little_then_the_rest_is_as_everybody_has_it(
    scheme: str, port: int
) -> None:
    settings = RabbitMQSettings.from_url(f"{scheme}://broker")

    assert (settings.port, settings.vhost, settings.is_tls) == (port, "/", scheme == "amqps")


@pytest.mark.parametrize(
    "url",
    [
        "http://broker",
        "amqp://broker/a/b",
        "amqp://broker:x",
        "amqp://broker:99999",
        "amqp://broker?heartbeat=often",
        "amqp://broker?color=red",
        "amqp://broker?heartbeat=0",
        "amqp://broker?confirm_timeout=-1",
        "amqp://broker?confirm_timeout=nan",
        "amqp://broker?cert_file=/c.pem",
        "amqp://one,two",
        "amqp://ann:pw@one,ann:pw@two",
    ],
)
def test_when_a_url_cannot_work_then_the_error_names_the_field_and_the_remedy(url: str) -> None:
    """R56."""
    with pytest.raises(ConfigurationError) as caught:
        from_url(url)

    assert caught.value.remedy


def test_when_settings_are_shown_then_the_password_is_not() -> None:
    """R57: and it still works."""
    url = "amqp://ann:s3cret@broker/vhost"
    settings = RabbitMQSettings.from_url(url)

    shown = [
        repr(settings),
        repr(RabbitMQGateway(settings)),
        settings.address,
        without_secrets(url),
    ]

    assert all("s3cret" not in each for each in shown)
    assert amqp._url(settings).password == "s3cret"
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_when_a_url_with_a_password_is_wrong_then_the_error_does_not_show_it() -> None:
    """R57."""
    with pytest.raises(ConfigurationError) as caught:
        from_url("amqp://ann:s3cret@broker/a/b")

    assert "s3cret" not in str(caught.value)


def test_when_a_virtual_host_has_a_slash_then_the_sdk_is_given_it_escaped() -> None:
    settings = RabbitMQSettings(vhost="a/b", user="x y", password="p:@/")

    url = amqp._url(settings)

    assert url.raw_path == "/a%2Fb"
    assert (url.user, url.password) == ("x y", "p:@/")
