"""AWS Lambda: an app as a function that a queue invokes, with the pump's own parts.

How a function answers and when it stops is here; `handler`, which handles the events, is loaded
by `App.lambda_handler` alone.
"""

from __future__ import annotations

from datetime import timedelta

import attrs

from ..errors import ConfigurationError

# Options: how a function answers, and when it stops.

DEFAULT_MARGIN = timedelta(seconds=1)
"""What a function keeps of its time for telling the provider what became of its messages."""


@attrs.frozen(kw_only=True)
class LambdaOptions:
    """What `App.lambda_handler` was given."""

    partial_batches: bool = True
    """Whether failed messages are named in the answer; otherwise any of them is an error."""
    margin: timedelta = DEFAULT_MARGIN
    """How long before the function's end nothing is started and what runs is stopped."""
    is_spill_durable: bool = False
    """Whether a spill outlives this execution environment; otherwise it is not used."""

    def __attrs_post_init__(self) -> None:
        if not _is_bool(self.partial_batches):
            raise ConfigurationError(
                "lambda_handler.partial_batches", self.partial_batches, "use True or False"
            )
        if not _is_positive(self.margin):
            raise ConfigurationError(
                "lambda_handler.margin", self.margin, "use a timedelta above zero"
            )


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _is_positive(value: object) -> bool:
    return isinstance(value, timedelta) and value > timedelta(0)
