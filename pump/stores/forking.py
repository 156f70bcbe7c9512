"""Forking: what a forked child must let go of at once.

A child shares its parent's locks and sockets. Held on to, they outlive the parent: nobody
could take over from a host that died, and its clients would not even notice.
"""

from __future__ import annotations

import os

_fds: set[int] = set()


def close_in_child(fd: int) -> None:
    """Have every forked child close this descriptor."""
    _fds.add(fd)


def closed(fd: int) -> bool:
    """Take note that it is closed here, for its number may be another's soon; False in a child,
    where that was done.
    """
    is_open = fd in _fds
    _fds.discard(fd)
    return is_open


def _close_all() -> None:
    while _fds:
        os.close(_fds.pop())


os.register_at_fork(after_in_child=_close_all)
