"""Sampling: one line in N for what goes well, every line for what does not."""

from __future__ import annotations

import logging
from zlib import crc32

DELIVERIES = "pump.delivery"
"""The stdlib logger of the one line a delivery."""


class DeliverySampling(logging.Filter):
    """Of the lines of messages processed at the first attempt, keep those of one message in N.

    Added to the stdlib logger `pump.delivery`, in code or by `logging.config`. Which messages
    are kept depends on their ids alone: a message that is kept is kept wherever it is logged with
    the same N. The lines kept say `sampled=N`, so that counts can be scaled.
    """

    def __init__(self, one_in: int = 100) -> None:
        super().__init__()
        if one_in < 1:
            raise ValueError(f"one_in={one_in!r}: use a whole number of 1 or more")
        self.one_in = one_in

    def filter(self, record: logging.LogRecord) -> bool:
        """Let everything pass: what is not kept was never put together."""
        return True


def is_kept(message_id: str, one_in: int) -> bool:
    """Whether the line of a message with this id is kept."""
    return crc32(message_id.encode(errors="surrogatepass")) % one_in == 0


def sampling_of(logger: logging.Logger) -> int:
    """The N that was asked for on this logger; 1 when every line is wanted."""
    for each in logger.filters:
        if isinstance(each, DeliverySampling):
            return each.one_in
    return 1


def sample_deliveries(one_in: int) -> None:
    """Ask for one line in N from now on, instead of whatever was asked for before."""
    logger = logging.getLogger(DELIVERIES)
    for each in logger.filters[:]:
        if isinstance(each, DeliverySampling):
            logger.removeFilter(each)
    if one_in > 1:
        logger.addFilter(DeliverySampling(one_in))
