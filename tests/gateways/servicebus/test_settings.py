"""Settings are checked when they are made, and keep their secrets (R56, R57)."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given, strategies as st

from gateways.servicebus import ServiceBusGateway, ServiceBusSettings, from_url
from pump.errors import ConfigurationError
from pump.secret import Secret

NAMESPACE = "shop.servicebus.windows.net"
SECRET = "c2VjcmV0LWtleQ=="


def test_when_a_url_names_a_namespace_then_azure_identity_logs_in() -> None:
    settings = ServiceBusSettings.from_url(f"sb://{NAMESPACE}")

    assert (settings.namespace, settings.key_name, settings.key) == (NAMESPACE, None, None)
    assert settings.amqp_port == 5671


def test_when_a_url_has_a_key_then_it_is_read_as_it_was_written() -> None:
    settings = ServiceBusSettings.from_url(f"sb://root:a%2Bb%2Fc%3D@{NAMESPACE}?websocket=true")

    assert (settings.key_name, settings.key) == ("root", Secret("a+b/c="))
    assert settings.amqp_port == 443


def test_when_azure_shows_a_connection_string_then_it_is_understood() -> None:
    settings = ServiceBusSettings.from_connection_string(
        f"Endpoint=sb://{NAMESPACE}/;SharedAccessKeyName=root;SharedAccessKey={SECRET}",
        request_timeout_s=5.0,
    )

    assert settings == ServiceBusSettings(
        namespace=NAMESPACE, key_name="root", key=SECRET, request_timeout_s=5.0
    )


@given(key=st.text(st.characters(codec="ascii", exclude_characters=";"), min_size=1))
def test_when_a_connection_string_is_made_then_it_is_read_back(key: str) -> None:
    settings = ServiceBusSettings(
        namespace="127.0.0.1", key_name="root", key=key.strip() or "k", is_emulator=True, port=5673
    )

    assert ServiceBusSettings.from_connection_string(settings.connection_string) == settings


@pytest.mark.parametrize(
    "url",
    [
        "sb://",
        "sb://host/queue",
        "amqp://host",
        "sb://[broken",
        f"sb://{NAMESPACE}:5671",
        f"sb://root@{NAMESPACE}",
        f"sb://{NAMESPACE}?colour=blue",
        f"sb://{NAMESPACE}?websocket=perhaps",
        f"sb://{NAMESPACE}?request_timeout=soon",
        f"sb://{NAMESPACE}?max_message_bytes=-1",
        "sb://127.0.0.1?emulator=true",
    ],
)
def test_when_a_url_makes_no_sense_then_nothing_is_built(url: str) -> None:
    with pytest.raises(ConfigurationError):
        from_url(url)


@pytest.mark.parametrize(
    "url",
    [
        f"sb://root:se/{SECRET}@{NAMESPACE}",
        f"sb://root:{SECRET}/cret@{NAMESPACE}",
        f"sb://root:{SECRET}?cret@{NAMESPACE}",
        f"sb://root:{SECRET}#cret@{NAMESPACE}",
        f"sb://root:1234/{SECRET}@{NAMESPACE}",
        f"sb://root:{SECRET}",
        f"sb://root:{SECRET}@{NAMESPACE}/queue",
        f"sb://root:{SECRET}@{NAMESPACE}?colour={SECRET}",
        f"sb://root:{SECRET}%3B@{NAMESPACE}",
        f"Endpoint=sb://{NAMESPACE};SharedAccessKeyName=root;SharedAccessKey={SECRET}",
    ],
)
def test_when_a_key_is_written_wrongly_then_the_error_does_not_repeat_it(url: str) -> None:
    """R57: Azure's keys have slashes, which end a URL's host."""
    with pytest.raises(ConfigurationError) as caught:
        from_url(url)

    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Endpoint",
        f"SharedAccessKeyName=root;SharedAccessKey={SECRET}",
        f"Endpoint=sb://{NAMESPACE}:x;SharedAccessKeyName=root;SharedAccessKey={SECRET}",
        f"Endpoint=sb://{NAMESPACE};SharedAccessKeyName=root;SharedAccessKey={SECRET};EntityPath=q",
        f"Endpoint=sb://{NAMESPACE};SharedAccessSignature={SECRET}",
        f"Endpoint=sb://{NAMESPACE};SharedAccessKeyName=root",
    ],
)
def test_when_a_connection_string_makes_no_sense_then_no_part_of_it_is_repeated(text: str) -> None:
    """R57."""
    with pytest.raises(ConfigurationError) as caught:
        ServiceBusSettings.from_connection_string(text)

    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"namespace": ""},
        {"namespace": f"sb://{NAMESPACE}"},
        {"namespace": NAMESPACE, "key": SECRET},
        {"namespace": NAMESPACE, "key_name": "", "key": ""},
        {"namespace": NAMESPACE, "key_name": "root", "key": "a;b=c"},
        {"namespace": NAMESPACE, "request_timeout_s": 0},
        {"namespace": NAMESPACE, "request_timeout_s": float("inf")},
        {"namespace": NAMESPACE, "max_message_bytes": 100},
    ],
)
def test_when_a_field_makes_no_sense_then_it_is_named(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="ServiceBusSettings"):
        ServiceBusSettings(**fields)


def test_when_settings_are_shown_then_the_key_is_not() -> None:
    """R57: it still works, and survives a pickle."""
    settings = ServiceBusSettings(namespace=NAMESPACE, key_name="root", key=SECRET)

    shown = [repr(settings), str(settings), settings.address, repr(ServiceBusGateway(settings))]

    assert not any(SECRET in text for text in shown)
    assert SECRET in settings.connection_string
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_when_a_larger_tier_is_set_then_the_capabilities_say_so() -> None:
    gateway = from_url(f"sb://{NAMESPACE}?max_message_bytes=1048576")

    assert gateway.capabilities.max_body_bytes == 1_048_576 - 4_096
