"""Options: where an app's health is served, where it is controlled, and what counts as ill."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import attrs

from ..errors import ConfigurationError
from ..http.guard import is_loopback

MAX_PORT = 65_535
# What a kernel takes as the path of a Unix socket: 107 bytes on Linux, 103 on BSD and macOS.
_MAX_SOCKET_PATH = 103
_UNIX = "unix:"


def _as_path(value: Path | str | None) -> Path | None:
    return None if value is None else Path(value)


@attrs.frozen(kw_only=True)
class HealthOptions:
    """Probes on `host` and `port`, control on `control_port` or `control_socket`; what is None is
    not served, and 0 takes any port that is free.
    """

    host: str = "127.0.0.1"
    """Where probes are answered, to any client there: `0.0.0.0` is for the network of a pod."""
    port: int | None = None
    control_host: str = "127.0.0.1"
    """An address of this machine alone: any client that reaches it can stop the app."""
    control_port: int | None = None
    control_socket: Path | None = attrs.field(default=None, converter=_as_path)
    """A Unix socket for control instead of a port; only this process's user may open it."""
    poll_grace: timedelta = timedelta(seconds=30)
    """Not ready when a receive is unanswered for `Subscription.wait` and this much more."""
    max_failed_polls: int = 3
    """Not ready when so many receives in a row have failed."""
    max_failing: timedelta = timedelta(minutes=5)
    """Not alive when a pump has broken again and again, by a defect, for this long."""
    max_stuck: timedelta = timedelta(minutes=1)
    """Not alive when a pump does not even try to receive, though it should, for this long."""

    def __attrs_post_init__(self) -> None:
        if self.port is None and self.control_port is None and self.control_socket is None:
            raise ConfigurationError(
                "HealthOptions.port", None, "name a port, a control_port or a control_socket"
            )
        _check_port("port", self.port)
        _check_port("control_port", self.control_port)
        if not self.host:
            raise ConfigurationError(
                "HealthOptions.host", self.host, "use 127.0.0.1, or 0.0.0.0 for every address"
            )
        self._check_control()
        self._check_limits()

    def _check_control(self) -> None:
        if not is_loopback(self.control_host):
            raise ConfigurationError(
                "HealthOptions.control_host",
                self.control_host,
                "control needs no password and is served to this machine alone; use 127.0.0.1, "
                "and from elsewhere a tunnel (ssh -L, kubectl port-forward)",
            )
        if self.control_socket is None:
            return
        if self.control_port is not None:
            raise ConfigurationError(
                "HealthOptions.control_socket",
                str(self.control_socket),
                "control has a port already; name one of the two",
            )
        if len(str(self.control_socket).encode()) > _MAX_SOCKET_PATH:
            raise ConfigurationError(
                "HealthOptions.control_socket",
                str(self.control_socket),
                f"a socket's path has at most {_MAX_SOCKET_PATH} bytes; use a shorter one",
            )

    def _check_limits(self) -> None:
        for name in ("poll_grace", "max_failing", "max_stuck"):
            if getattr(self, name) <= timedelta(0):
                raise ConfigurationError(
                    f"HealthOptions.{name}", getattr(self, name), "use a time above zero"
                )
        if self.max_failed_polls < 1:
            raise ConfigurationError(
                "HealthOptions.max_failed_polls", self.max_failed_polls, "use 1 or more"
            )

    @classmethod
    def from_addresses(cls, health: str | None, control: str | None) -> HealthOptions | None:
        """From `[HOST:]PORT` and `[HOST:]PORT` or `unix:PATH`; None when both are None."""
        if health is None and control is None:
            return None
        fields: dict[str, object] = {}
        if health is not None:
            fields["host"], fields["port"] = parse_address("health", health)
        if control is not None and control.startswith(_UNIX):
            fields["control_socket"] = parse_socket(control)
        elif control is not None:
            fields["control_host"], fields["control_port"] = parse_address("control", control)
        return cls(**fields)  # type: ignore[arg-type]


def parse_address(field: str, text: str) -> tuple[str, int]:
    """`PORT`, `HOST:PORT` or `[IPV6]:PORT` as host and port; without a host, this machine's."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigurationError(field, text, "write an IPv6 address as [ADDRESS]:PORT")
    is_number = port.isascii() and port.isdecimal() and len(port) <= len(str(MAX_PORT))
    if not is_number or int(port) > MAX_PORT or (colon and not host):
        other = ", or unix:PATH" if field == "control" else ""
        raise ConfigurationError(field, text, f"write PORT or HOST:PORT, such as 8080{other}")
    return host or "127.0.0.1", int(port)


def parse_socket(text: str) -> Path:
    """The path of `unix:PATH`."""
    path = text.removeprefix(_UNIX)
    if not path:
        raise ConfigurationError("control", text, "write unix:PATH, such as unix:/run/pump.sock")
    return Path(path)


def is_socket_address(text: str) -> bool:
    """Whether it is a `unix:PATH`."""
    return text.startswith(_UNIX)


def _check_port(name: str, port: int | None) -> None:
    if port is not None and not 0 <= port <= MAX_PORT:
        raise ConfigurationError(
            f"HealthOptions.{name}", port, f"use a port up to {MAX_PORT}, or 0 for any"
        )
