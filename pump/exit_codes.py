"""Exit codes: what a script may rely on, and which error leads to which."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class ExitCode(IntEnum):
    """How a command ended. Documented in docs/cli.md; numbers never change their meaning."""

    OK = 0
    """Done; for `pump run`: drained."""
    UNEXPECTED = 1
    """A defect, ours or the user's; for `pump doctor`: it found errors."""
    USAGE = 2
    """The command line was wrong."""
    CONFIGURATION = 3
    """The app, or a setting, cannot work."""
    BROKER = 4
    """The broker cannot be reached, a queue is missing, or messages were not accepted."""
    UNACCEPTABLE = 5
    """A pump stopped because too many messages were unacceptable."""
    FORCED = 130
    """A second signal, or Ctrl-C where there was nothing to drain."""


def exit_code_of(error: BaseException) -> ExitCode:
    """The code an error ends a command with; of a group, the one that needs a person most."""
    from .errors import GatewayError, PumpError, SendFailed, UnacceptableLimitReached

    match error:
        case Failure(exit_code=exit_code):
            return exit_code
        case BaseExceptionGroup(exceptions=parts):
            return most_urgent(exit_code_of(part) for part in parts)
        case UnacceptableLimitReached():
            return ExitCode.UNACCEPTABLE
        case GatewayError() | SendFailed():
            return ExitCode.BROKER
        case PumpError():
            return ExitCode.CONFIGURATION
        case KeyboardInterrupt():
            return ExitCode.FORCED
        case _:
            return ExitCode.UNEXPECTED


def most_urgent(codes: Iterable[ExitCode]) -> ExitCode:
    """Of codes of failures, the one that needs a person most."""
    return min(codes, key=_URGENCY.index)


_URGENCY = [
    ExitCode.UNEXPECTED,
    ExitCode.USAGE,
    ExitCode.CONFIGURATION,
    ExitCode.UNACCEPTABLE,
    ExitCode.BROKER,
    ExitCode.FORCED,
]


class Failure(Exception):
    """The end of a command that is the user's to mend: what went wrong and what to do.

    It is printed as one line; `details`, such as a traceback, come before it.
    """

    def __init__(
        self,
        message: str,
        remedy: str = "",
        exit_code: ExitCode = ExitCode.CONFIGURATION,
        details: str = "",
    ) -> None:
        super().__init__(message, remedy, exit_code, details)
        self.message = message
        self.remedy = remedy
        self.exit_code = exit_code
        self.details = details

    def __str__(self) -> str:
        return f"{self.message}; {self.remedy}" if self.remedy else self.message
