"""Diagnosis: all checks of the doctor, and how they are printed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import attrs
from rich.text import Text

from ..app import App
from ..findings import Finding, Level, error
from ..observability.redaction import scrub
from .app_checks import app_findings
from .console import print_json, printable, stdout
from .exit_codes import ExitCode
from .failure import Failure
from .gateway_checks import gateway_findings, spill_findings
from .lease_checks import observed_times
from .log_setup import set_up_logging
from .machine_checks import machine_findings
from .session import app_for

_STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.ERROR: "bold red"}


def diagnose(target: str | None, gateway: str | None) -> list[Finding]:
    """Look at everything, from the machine to the broker."""
    set_up_logging("error", "console")
    findings = machine_findings()
    try:
        app = app_for(target, gateway)
    except Failure as failure:
        return [*findings, error("app", *str(failure).split("; ", 1))]
    if target is not None:
        findings += app_findings(app, target)
    return findings + asyncio.run(_outside(app))


def print_findings(findings: Sequence[Finding], *, as_json: bool) -> ExitCode:
    """Print them all, and return 1 when one is an error."""
    findings = [attrs.evolve(each, detail=scrub(each.detail)) for each in findings]
    errors = sum(each.level is Level.ERROR for each in findings)
    warnings = sum(each.level is Level.WARNING for each in findings)
    if as_json:
        listed = [attrs.asdict(each) for each in findings]
        print_json({"errors": errors, "warnings": warnings, "findings": listed})
    else:
        for each in findings:
            _print(each)
        stdout().print(f"{errors} error(s), {warnings} warning(s)")
    return ExitCode.UNEXPECTED if errors else ExitCode.OK


async def _outside(app: App) -> list[Finding]:
    observed, record = await observed_times(app)
    outside = await gateway_findings(app, observed)
    return [*record, *outside, *await spill_findings(app)]


def _print(finding: Finding) -> None:
    line = Text.assemble(
        (f"{finding.level.value:<8}", _STYLES[finding.level]),
        (f"{finding.subject}: ", "bold"),
        printable(finding.detail),
    )
    console = stdout()
    console.print(line, soft_wrap=True)
    if finding.remedy:
        console.print(Text(f"        → {printable(finding.remedy)}"), soft_wrap=True)
