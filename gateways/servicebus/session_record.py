"""What is noted about a session in its state: until when it rests. Pure.

A message that was deferred comes again before its successors, so the whole session waits for it,
whoever accepts it next. A state that somebody else has set is left alone.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import Final

_MARK: Final = "pump-session"
_VERSION: Final = 1


def rests_until(state: bytes | None) -> float | None:
    """When the session may go on, in Unix time; 0 for at once, None where the state is not ours."""
    if not state:
        return 0.0
    try:
        found = json.loads(state)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get(_MARK) != _VERSION:
        return None
    until = found.get("rests_until")
    if isinstance(until, int | float) and isfinite(until):
        return float(until)
    return 0.0


def record(until_s: float) -> bytes:
    """The state of a session that rests until then."""
    return json.dumps({_MARK: _VERSION, "rests_until": until_s}).encode()
