"""This machine's clock and AWS's: a signature counts for minutes, and by AWS's clock.

A refusal that may be for the time, with a date that is far from ours, tells how far: from then on
requests are signed by AWS's time, and the refused one is worth another try at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from pump.clock import Clock

from ..codes import plain

MIN_SKEW_S = 240.0
"""AWS takes what was signed up to five minutes ago; a lesser difference explains no refusal."""
_ABOUT_TIME = {
    "RequestTimeTooSkewed",
    "RequestExpired",
    "RequestInTheFuture",
    # Of these, time is but one of the possible reasons.
    "InvalidSignature",
    "SignatureDoesNotMatch",
    "AuthFailure",
    # What a HEAD is told, which has no body to say more.
    "403",
}


class AwsTime:
    """AWS's time, as far as its refusals have told."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.ahead_s = 0.0
        """How far it is ahead of this machine's."""

    def now_s(self) -> float:
        """Unix time at AWS."""
        return self._clock.time_s() + self.ahead_s

    def learn(self, code: str, headers: Mapping[str, str], *, signed_ahead_s: float) -> bool:
        """Take the date of a refusal over; whether the same request, signed anew, may pass.

        `signed_ahead_s` is what was known when it was signed: of several requests that were on
        their way, the first refusal corrects the time, and the others were for the time as well.
        """
        signed_by_s = self._clock.time_s() + signed_ahead_s
        further_s = skew_s(code, headers.get("date", ""), now_s=signed_by_s)
        if further_s is None:
            return False
        self.ahead_s = signed_ahead_s + further_s
        return True


def skew_s(code: str, date: str, *, now_s: float) -> float | None:
    """How far ahead of `now_s` AWS was when it refused; None when that is not the reason."""
    if plain(code) not in _ABOUT_TIME:
        return None
    try:
        ahead_s = parsedate_to_datetime(date).timestamp() - now_s
    except ValueError:  # no date, or none that can be read
        return None
    return ahead_s if abs(ahead_s) > MIN_SKEW_S else None
