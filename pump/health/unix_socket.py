"""A Unix socket that only one user may open, made where a dead process may have left its own."""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path

from ..errors import ConfigurationError

_OWNER_ONLY = 0o600


def bind(field: str, path: Path) -> socket.socket:
    """A bound socket, not yet listening; blocks. `ConfigurationError` when the path cannot be had.

    Nobody can connect before it listens, so there is no moment at which others may open it.
    """
    if not hasattr(socket, "AF_UNIX"):
        raise ConfigurationError(field, str(path), "there are no Unix sockets here; use a port")
    _remove_left_behind(field, path)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        made.bind(str(path))
        os.chmod(path, _OWNER_ONLY)
    except OSError as error:
        made.close()
        raise ConfigurationError(
            field, str(path), f"{error.strerror}; name a path in a folder that exists and is yours"
        ) from error
    return made


def _remove_left_behind(field: str, path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except OSError:
        return  # Binding says what is wrong, if anything is.
    if not stat.S_ISSOCK(mode):
        raise ConfigurationError(field, str(path), "that is a file; name a path that is free")
    if _is_listening(path):
        raise ConfigurationError(
            field, str(path), "another process listens there; end it, or choose another path"
        )
    path.unlink(missing_ok=True)


def _is_listening(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.settimeout(1.0)
        try:
            caller.connect(str(path))
        except OSError as error:
            return error.errno not in (errno.ECONNREFUSED, errno.ENOENT)
    return True
