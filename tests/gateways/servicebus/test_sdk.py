"""What is used of the SDK without its promise is still there."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from pathlib import Path

from azure.servicebus._pyamqp.aio._client_async import AMQPClientAsync, ReceiveClientAsync
from azure.servicebus._transport._pyamqp_transport import RECEIVE_LINK_DRAIN_TIMEOUT
from azure.servicebus.aio import ServiceBusReceiver, ServiceBusSender
from azure.servicebus.aio._transport._pyamqp_transport_async import PyamqpTransportAsync

from gateways.servicebus import ServiceBusSettings, sdk

ROOT = Path(__file__).resolve().parents[3]


def parameters(function: object) -> list[str]:
    assert callable(function)
    return list(inspect.signature(function).parameters)


def test_when_many_locks_are_settled_at_once_then_the_sdk_still_can() -> None:
    assert parameters(ServiceBusReceiver._settle_message_via_mgmt_link) == [
        "self",
        "settlement",
        "lock_tokens",
        "dead_letter_details",
    ]
    assert parameters(ServiceBusReceiver._renew_locks)[:2] == ["self", "lock_tokens"]


def test_when_a_link_is_drained_then_the_sdk_still_can_without_closing_it() -> None:
    assert parameters(PyamqpTransportAsync.drain_and_release_messages_async) == ["handler"]
    assert RECEIVE_LINK_DRAIN_TIMEOUT <= 5


def test_when_links_are_made_lean_then_there_is_something_to_change() -> None:
    assert "auth" in parameters(ServiceBusReceiver._create_handler)
    assert "auth" in parameters(ServiceBusSender._create_handler)
    assert parameters(AMQPClientAsync.client_ready_async) == ["self"]
    assert "_keep_alive_interval" in inspect.getsource(AMQPClientAsync)
    assert "_further_pull_receive_timeout" in inspect.getsource(ServiceBusReceiver._receive)


def test_when_a_session_keeps_what_comes_unasked_then_there_is_something_to_take_away() -> None:
    replacing = PyamqpTransportAsync.set_handler_message_received_async

    assert "_handler._message_received_async = " in inspect.getsource(replacing)
    assert "_received_messages.put" in inspect.getsource(ReceiveClientAsync._message_received_async)


async def test_when_the_sdk_is_asked_to_repeat_nothing_then_it_does_not() -> None:
    """A send that it repeats may arrive twice, and its pauses are not ours."""
    settings = ServiceBusSettings(namespace="127.0.0.1", key_name="k", key="c2VjcmV0")
    client = await asyncio.to_thread(sdk.client_of, settings, None)
    async with client:
        link = await asyncio.to_thread(sdk.receiver_of, client, "orders", read_s=0.1)

        assert link._config.retry_total == 0
        assert link._config.socket_timeout == 0.1


async def test_when_there_is_no_key_then_azure_identity_logs_in() -> None:
    """And with one, nobody is asked who we are."""
    nameless = ServiceBusSettings(namespace="shop.servicebus.windows.net")
    keyed = ServiceBusSettings(namespace="shop.servicebus.windows.net", key_name="k", key="c2Vj")

    credential = await asyncio.to_thread(sdk.credential_of, nameless)
    async with credential, await asyncio.to_thread(sdk.client_of, nameless, credential) as client:
        assert type(credential).__name__ == "DefaultAzureCredential"
        assert client._credential is credential
    assert sdk.credential_of(keyed) is None


def test_when_the_gateway_is_imported_then_the_sdk_is_not() -> None:
    """R77: so that a missing one is an error with a cure, and not a stack trace."""
    program = (
        "import sys, gateways.servicebus\n"
        "gateways.servicebus.from_url('sb://shop.servicebus.windows.net')\n"
        "sys.exit(any(name.startswith('azure') for name in sys.modules))"
    )

    done = subprocess.run([sys.executable, "-c", program], check=False, cwd=ROOT, timeout=20)

    assert done.returncode == 0
