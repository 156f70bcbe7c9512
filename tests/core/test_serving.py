"""Servers by entry point: clear words when one is not there, or lacks something."""

from __future__ import annotations

import pytest

from pump import serving
from pump.errors import ConfigurationError
from pump.serving import ServerOptions, make_server


class PointWithout:
    """An entry point whose module imports what is not installed."""

    def __init__(self, module: str) -> None:
        self._module = module

    def load(self) -> object:
        raise ModuleNotFoundError(f"No module named {self._module!r}", name=self._module)


def test_when_there_is_no_such_server_then_it_says_so() -> None:
    with pytest.raises(ConfigurationError, match="no such server"):
        make_server(ServerOptions(), kind="mainframe")


def test_when_an_extra_is_missing_then_its_installation_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "entry_points", lambda **_: [PointWithout("aiohttp")])

    with pytest.raises(ConfigurationError, match=r"pip install 'pumphouse\[local\]'"):
        make_server(ServerOptions())


def test_when_a_module_of_ours_is_missing_then_no_remedy_is_made_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "entry_points", lambda **_: [PointWithout("gateways.gone")])

    with pytest.raises(ModuleNotFoundError, match="gone"):
        make_server(ServerOptions())
