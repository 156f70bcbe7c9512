"""Writing: a conditional write that ends in a decision, whatever became of its answer.

| reply                  | what it means                  | what follows                    |
|------------------------|--------------------------------|---------------------------------|
| `Written`              | decided, for us                | the end                         |
| `Refused`, no doubt    | decided, for another           | the end: `Lost`, without a look |
| `Refused`, may be ours | perhaps our own write is there | read back                       |
| `Busy`                 | nothing is decided             | the same write again, in doubt  |
|                        |                                | if it was made more than once   |
| `Unknown`              | it happened, or may happen yet | read back, and in doubt         |

Read back, our own body is a decision for us, another's one for another. The version we wanted to
replace means that nothing has happened so far: the same write again, which at most one of the two
can win.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from pump.errors import GatewayError, Throttled

from ...store.driving import Steps
from ...store.objects import Busy, Found, Get, Missing, Put, Refused, Same, Unknown, Written

MAX_TRIES = 4
"""How often a request is made before a protocol gives up; the transport below repeats its own."""


@attrs.frozen
class Lost:
    """Another's version is there; `found` when it had to be looked at."""

    found: Found | None = None


@attrs.frozen
class Gone:
    """What was in our way, or what we wanted to replace, was removed."""


@attrs.frozen
class Undecided:
    """The store did not say: the write may have happened, or happen yet."""

    error: GatewayError


Verdict = Written | Lost | Gone | Undecided


def write(
    put: Put,
    is_ours: Callable[[Found], bool],
    *,
    is_doubtful: bool = False,
    witness: str | None = None,
) -> Steps[Verdict]:
    """Write on a condition and say who won. `is_doubtful` when an earlier write of ours may be
    what stands there. `witness` is an object that is there only if what we write has been: with it,
    an answer that was lost is not taken for a write that was.
    """
    error: GatewayError = Throttled(put.key)
    for _ in range(MAX_TRIES):
        reply = yield put
        if isinstance(reply, Written):
            return reply
        if isinstance(reply, Busy):
            is_doubtful = is_doubtful or reply.may_be_ours
            continue
        if isinstance(reply, Unknown):
            is_doubtful, error = True, reply.error
        elif not (is_doubtful or reply.may_be_ours):
            return Lost()
        verdict = _judge(put, reply, (yield from read(put.key)), is_ours)
        if verdict is not None:
            return verdict
        if witness is not None:
            seen = yield from read(witness, has_body=False)
            if isinstance(seen, Found):
                return Gone()
    return Undecided(error)


def read(key: str, *, unless: str | None = None, has_body: bool = True) -> Steps[Reading]:
    """Read an object, as often as it takes to get an answer."""
    error: GatewayError = Throttled(key)
    for _ in range(MAX_TRIES):
        reply = yield Get(key, unless, has_body)
        if isinstance(reply, Found | Missing | Same):
            return reply
        if isinstance(reply, Unknown):
            error = reply.error
    return Undecided(error)


Reading = Found | Missing | Same | Undecided


def _judge(
    put: Put, reply: Refused | Unknown, there: Reading, is_ours: Callable[[Found], bool]
) -> Verdict | None:
    """Who has won, by what is there; None while nobody has."""
    match there:
        case Undecided():
            return there
        case Found() if is_ours(there):
            return Written(there.etag)
        case Found() if there.etag == put.if_match:
            return None
        case Found():
            return Lost(there)
        case _:
            # Nothing is there. A new object whose write got no answer may just not be there yet.
            return None if put.is_new and isinstance(reply, Unknown) else Gone()
