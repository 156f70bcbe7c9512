"""Failure: an end of a command that is the user's to mend, said in one line."""

from __future__ import annotations

from .exit_codes import ExitCode


class Failure(Exception):
    """What went wrong and what to do; `details`, such as a traceback, is printed before it."""

    def __init__(
        self,
        message: str,
        *,
        remedy: str = "",
        exit_code: ExitCode = ExitCode.CONFIGURATION,
        details: str = "",
    ) -> None:
        super().__init__(f"{message}; {remedy}" if remedy else message)
        self.exit_code = exit_code
        self.details = details
