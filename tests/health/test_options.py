"""Options: every address that cannot work is said at once, with the remedy."""

from __future__ import annotations

import pickle
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pump.errors import ConfigurationError
from pump.health import HealthOptions


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({}, "name a port"),
        ({"port": -1}, "use a port up to 65535"),
        ({"port": 65_536}, "use a port up to 65535"),
        ({"control_port": 70_000}, "HealthOptions.control_port"),
        ({"port": 1, "host": ""}, "0.0.0.0 for every address"),
        ({"control_port": 1, "control_host": "0.0.0.0"}, "this machine alone"),
        ({"control_port": 1, "control_host": "::"}, "this machine alone"),
        ({"control_port": 1, "control_host": "10.0.0.1"}, "kubectl port-forward"),
        ({"control_port": 1, "control_host": "example.org"}, "this machine alone"),
        ({"control_port": 1, "control_socket": "/run/p.sock"}, "name one of the two"),
        ({"control_socket": "/" + "x" * 200}, "use a shorter one"),
        ({"port": 1, "poll_grace": timedelta(0)}, "poll_grace"),
        ({"port": 1, "max_failing": timedelta(seconds=-1)}, "max_failing"),
        ({"port": 1, "max_stuck": timedelta(0)}, "max_stuck"),
        ({"port": 1, "max_failed_polls": 0}, "use 1 or more"),
    ],
)
def test_when_options_cannot_work_then_the_remedy_is_named(
    fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigurationError, match=named.replace(".", r"\.")):
        HealthOptions(**fields)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_when_control_is_on_this_machine_then_it_is_taken(host: str) -> None:
    assert HealthOptions(control_port=1, control_host=host).control_host == host


@pytest.mark.parametrize(
    ("health", "control", "options"),
    [
        (None, None, None),
        ("8080", None, HealthOptions(port=8080)),
        ("0.0.0.0:8080", None, HealthOptions(host="0.0.0.0", port=8080)),
        ("[::]:8080", None, HealthOptions(host="::", port=8080)),
        ("pod.local:0", None, HealthOptions(host="pod.local", port=0)),
        (None, "9091", HealthOptions(control_port=9091)),
        (None, "[::1]:9091", HealthOptions(control_host="::1", control_port=9091)),
        (None, "unix:/run/p.sock", HealthOptions(control_socket=Path("/run/p.sock"))),
        ("1", "2", HealthOptions(port=1, control_port=2)),
    ],
)
def test_when_addresses_are_given_as_text_then_they_are_read(
    health: str | None, control: str | None, options: HealthOptions | None
) -> None:
    assert HealthOptions.from_addresses(health, control) == options


@pytest.mark.parametrize(
    "text",
    ["", "http", ":80", "a:b", "::1:80", "80x", "-1", "99999", "٣", "1.5", "unix:/x", "9" * 5_000],
)
def test_when_a_health_address_is_wrong_then_the_form_is_named(text: str) -> None:
    with pytest.raises(ConfigurationError, match="write"):
        HealthOptions.from_addresses(text, None)


@pytest.mark.parametrize("text", ["", "unix:", "unix", "::1:80"])
def test_when_a_control_address_is_wrong_then_the_form_is_named(text: str) -> None:
    with pytest.raises(ConfigurationError, match="write"):
        HealthOptions.from_addresses(None, text)


def test_when_options_cross_a_process_then_they_arrive_whole() -> None:
    options = HealthOptions(port=1, control_socket="/run/p.sock")

    assert pickle.loads(pickle.dumps(options)) == options
