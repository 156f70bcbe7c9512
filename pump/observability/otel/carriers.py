"""Carriers: the headers of a message, as far as OpenTelemetry may read them.

Its propagators write what they cannot read into the program's log, word for word, and a message's
headers are a stranger's: a malformed `baggage` or `tracestate` is therefore left out, whole.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...headers import TRACE_STATE

BAGGAGE = "baggage"
_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_OCTETS = r"[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]*"
_PAIR = rf"{_TOKEN}={_OCTETS}"
# W3C Baggage, without its optional white space but after commas, and without bare properties.
_BAGGAGE = re.compile(rf"{_PAIR}(;{_PAIR})*(, ?{_PAIR}(;{_PAIR})*)*")
_MAX_BAGGAGE_BYTES = 4096
"""What a single pair may have, so that no limit of the propagator is met."""
_MAX_BAGGAGE_PAIRS = 64
_STATE = re.compile(
    r"[a-z][_0-9a-z\-*/]{0,240}(@[a-z][_0-9a-z\-*/]{0,13})?=[\x21-\x2b\x2d-\x3c\x3e-\x7e]{1,256}"
)
_MAX_STATES = 32


def readable(headers: Mapping[str, str]) -> Mapping[str, str]:
    """The headers, without what a propagator would complain of."""
    state, baggage = headers.get(TRACE_STATE), headers.get(BAGGAGE)
    is_state_bad = state is not None and not _is_state(state)
    is_baggage_bad = baggage is not None and not _is_baggage(baggage)
    if not (is_state_bad or is_baggage_bad):
        return headers
    dropped = {TRACE_STATE} if is_state_bad else set()
    if is_baggage_bad:
        dropped.add(BAGGAGE)
    return {name: value for name, value in headers.items() if name not in dropped}


def _is_baggage(text: str) -> bool:
    return (
        len(text) <= _MAX_BAGGAGE_BYTES
        and text.count(",") < _MAX_BAGGAGE_PAIRS
        and _BAGGAGE.fullmatch(text) is not None
    )


def _is_state(text: str) -> bool:
    members = [member.strip(" \t") for member in text.split(",")]
    keys = {member.partition("=")[0] for member in members}
    return len(keys) == len(members) <= _MAX_STATES and all(
        _STATE.fullmatch(member) for member in members
    )
