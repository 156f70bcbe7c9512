"""`pump doctor`: is this machine, and this app, as it should be?"""

from __future__ import annotations

import click

from .exit_codes import ExitCode
from .options import gateway_option, json_option


@click.command(short_help="Check this machine, and an app.")
@click.argument("target", metavar="[MODULE:APP]", required=False)
@gateway_option
@json_option
def doctor(target: str | None, *, gateway: str | None, as_json: bool) -> ExitCode:
    """Check Python, packages, Spark and its Java, shadowed modules and the gateway; with
    MODULE:APP also the app.

    Every finding is ok, a warning or an error, with a remedy. Exit code 1 when there is an error.

    \b
    Examples:
      pump doctor
      pump doctor app:app
      pump doctor app:app --json | jq '.findings[] | select(.level != "ok")'
    """
    from .diagnosis import diagnose, print_findings

    findings = diagnose(target, gateway)
    return print_findings(findings, as_json=as_json)
