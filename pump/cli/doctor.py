"""`pump doctor`: is this machine, and this app, as it should be?"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, entry_points, metadata, requires, version
from pathlib import Path

import attrs
import click
from rich.text import Text

from ..app import SPILL_REMEDY, App
from ..clock import SYSTEM_CLOCK, format_duration
from ..errors import ConfigurationError, PumpError, StorageFailed
from ..exit_codes import ExitCode, Failure
from ..findings import Finding, HandlerTimes, Level, error, error_from, ok, warning
from ..gateway_url import ENTRY_POINT_GROUP
from ..loading import put_working_folder_first, shadowing_warnings
from ..mapping import Mapper
from ..observability.redaction import scrub
from ..ports import Examiner
from ..runtime import check_support
from ..stores.handler_times import HandlerTimesFile
from ..stores.spill import SqliteSpill, perishing
from ..subscription import MakeChannels, OnRoutingFailure, Subscription
from .console import print_json, printable, stdout
from .options import gateway_option, json_option
from .run_report import request_name
from .session import app_for, set_up_logging, shown_gateway


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
    findings = diagnose(target, gateway)
    return print_findings(findings, as_json=as_json)


# Diagnosis: all checks of the doctor, and how they are printed.

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


# Gateway checks: can the broker be reached, does it have and support what the app needs?

_PATIENCE_S = 10.0
_EACH_S = 2.0
"""What a subscription adds: an examination may take several calls for each."""
_OLD_S = 60.0
"""How long a message waits in an outbox at most where its destination takes messages."""


async def gateway_findings(app: App, observed: Mapping[str, HandlerTimes]) -> list[Finding]:
    """Open the app's gateway, look around, and close it; nothing is sent or received."""
    where = shown_gateway(app)
    patience_s = _PATIENCE_S + _EACH_S * len(app.subscriptions)
    try:
        async with SYSTEM_CLOCK.timeout(patience_s), app:
            found = await _examined(app, where, observed)
            return found + _support(app) + _leases(app, observed) + await _outbox(app)
    except TimeoutError:
        remedy = "check the address, the network and the broker"
        return [error("gateway", f"{where} did not answer in {patience_s:g} s", remedy)]
    except PumpError as fault:
        return [error_from("gateway", fault)]


async def _outbox(app: App) -> list[Finding]:
    """Look for what was set aside, and for what waits without a relay."""
    if app.outbox is None:
        return []
    stats = await app.outbox.stats()
    aside, waiting = (
        sum(getattr(each, name) for each in stats) for name in ("set_aside", "waiting")
    )
    oldest_s = max((each.oldest_age_s or 0.0 for each in stats), default=0.0)
    if aside:
        remedy = "pump outbox MODULE:APP says why; then --retry or --drop"
        return [warning("outbox", f"{aside:,} message(s) were set aside", remedy)]
    if oldest_s > _OLD_S:
        detail = f"{waiting:,} message(s) wait, the oldest for {format_duration(oldest_s)}"
        remedy = "run the app, or pump relay; its log says which destination is in trouble"
        return [warning("outbox", detail, remedy)]
    return [ok("outbox", f"{waiting:,} message(s) wait")]


async def spill_findings(app: App) -> list[Finding]:
    """Look whether rejected messages wait on disk."""
    try:
        count = len(await app.spill.all())
    except StorageFailed as fault:
        return [error_from("spill", fault)]
    if count:
        remedy = "pump spill ls, then pump spill flush; a running app sends them by itself"
        return [warning("spill", f"{count:,} rejected message(s) wait for their queue", remedy)]
    return [ok("spill", "empty")]


async def _examined(app: App, where: str, observed: Mapping[str, HandlerTimes]) -> list[Finding]:
    started_s = SYSTEM_CLOCK.now_s()
    if isinstance(app.gateway, Examiner):
        found = await app.gateway.examine(app.subscriptions, observed)
        took = format_duration(SYSTEM_CLOCK.now_s() - started_s)
        return [ok("gateway", f"{where} answered, and was examined in {took}"), *found]
    names = [stats.name for stats in await app.admin.queues()]
    took = format_duration(SYSTEM_CLOCK.now_s() - started_s)
    answered = ok("gateway", f"{where} answered in {took}; {len(names)} queue(s)")
    return [answered, *_missing_queues(app, names)]


def _leases(app: App, observed: Mapping[str, HandlerTimes]) -> list[Finding]:
    max_lease_s = app.gateway.capabilities.max_lease_s
    return [
        finding
        for subscription in app.subscriptions
        for finding in lease_findings(subscription, observed, max_lease_s)
    ]


def _support(app: App) -> list[Finding]:
    found = []
    for subscription in app.subscriptions:
        try:
            check_support(subscription, app.gateway)
        except PumpError as fault:
            found.append(error_from(f"subscription {subscription.name}", fault))
    return found


def _missing_queues(app: App, names: Collection[str]) -> list[Finding]:
    return [
        error(
            f"subscription {subscription.name}",
            f"queue {spec.name!r} does not exist, and make_channels is "
            f"{subscription.make_channels.value!r}",
            "create the queue, or set make_channels='create'",
        )
        for subscription in app.subscriptions
        if subscription.make_channels is not MakeChannels.CREATE
        for spec in subscription.queue_specs()
        if spec.name not in names
    ]


# Machine checks: Python, packages, extras, Spark, and modules that stand in front of ours.

_DISTRIBUTION = "pumphouse"
_OLDEST_PYTHON = (3, 11)
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")


def machine_findings() -> list[Finding]:
    """Look at everything that is the same for all apps."""
    return [
        _python(),
        _packages(),
        _gateways(),
        *_extras(),
        *spark_findings(),
        *_shadowing(),
    ]


def _python() -> Finding:
    running = sys.version.split()[0]
    if sys.version_info < _OLDEST_PYTHON:
        return error("python", running, "use Python 3.11 or newer")
    return ok("python", f"{running} ({sys.executable})")


def _packages() -> Finding:
    versions = {name: installed_version(name) for name in _required()[""]}
    missing = [name for name, found in versions.items() if found is None]
    if missing:
        return error("packages", f"missing: {', '.join(missing)}", f"pip install {_DISTRIBUTION}")
    listed = ", ".join(f"{name} {found}" for name, found in sorted(versions.items()))
    return ok("packages", f"{_DISTRIBUTION} {version(_DISTRIBUTION)}, {listed}")


def _gateways() -> Finding:
    names = sorted({f"{point.name}://" for point in entry_points(group=ENTRY_POINT_GROUP)})
    if not names:
        return error(
            "gateways", "none is registered", f"pip install --force-reinstall {_DISTRIBUTION}"
        )
    return ok("gateways", ", ".join(names))


def _extras() -> list[Finding]:
    required = _required()
    names = sorted(metadata(_DISTRIBUTION).get_all("Provides-Extra") or ())
    return [_extra(name, required[name]) for name in names]


def _extra(name: str, packages: list[str]) -> Finding:
    versions = {package: installed_version(package) for package in packages}
    if all(found is not None for found in versions.values()):
        listed = ", ".join(f"{package} {found}" for package, found in versions.items())
        return ok(f"extra {name}", listed or "nothing to install here")
    missing = ", ".join(package for package, found in versions.items() if found is None)
    return ok(
        f"extra {name}",
        f"not installed (missing: {missing})",
        f"to use it: pip install '{_DISTRIBUTION}[{name}]'",
    )


def _shadowing() -> list[Finding]:
    put_working_folder_first()
    found = shadowing_warnings()
    if not found:
        return [ok("shadowing", "no module of yours stands in front of ours")]
    return [warning("shadowing", *line.split("; ", 1)) for line in found]


def installed_version(package: str) -> str | None:
    """The version that is installed, None when none is."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _required() -> dict[str, list[str]]:
    """The packages of each extra; those of "" are needed by all."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in requires(_DISTRIBUTION) or ():
        requirement, _, marker = line.partition(";")
        name = _REQUIREMENT.match(requirement.strip())
        extra = _EXTRA.search(marker)
        if name is not None:
            found["" if extra is None else extra.group(1)].append(name.group(1))
    return found


# Spark checks: can this machine run `pump spark`, and `pump report` without it?

_TO_USE_IT = "to use it: pip install 'pumphouse[{extra}]'"


def spark_findings() -> list[Finding]:
    """Look at PySpark, its Java and DuckDB; no JVM is started, and PySpark is not loaded."""
    return [_spark(), _duckdb()]


def _spark() -> Finding:
    from ..spark.session import installed, java_here

    pyspark = installed("pyspark")
    if pyspark is None:
        return ok("spark", "PySpark is not installed", _TO_USE_IT.format(extra="spark"))
    try:
        java = java_here()
    except ConfigurationError as fault:
        return warning("spark", f"PySpark {pyspark} has no Java", fault.remedy)
    found = f"PySpark {pyspark} runs on Java {java.version} ({java.source}: {java.executable})"
    pandas = installed("pandas") or ""
    if pandas.partition(".")[0] == "3":
        return warning("spark", f"{found}, but not with pandas {pandas}", "pip install 'pandas<3'")
    if java.passed_over:
        return warning(
            "spark",
            f"{found}, since {' and '.join(java.passed_over)}",
            "point JAVA_HOME at a Java 17 or 21, or unset it",
        )
    return ok("spark", found)


def _duckdb() -> Finding:
    from ..spark.session import installed

    duckdb = installed("duckdb")
    if duckdb is None:
        return ok("duckdb", "DuckDB is not installed", _TO_USE_IT.format(extra="report"))
    try:
        import duckdb as library

        library.connect(":memory:").close()
    except Exception as fault:  # broad: a broken installation fails in its own ways
        return warning(
            "duckdb",
            f"DuckDB {duckdb} does not load ({type(fault).__name__}: {fault})",
            "pip install --force-reinstall 'pumphouse[report]'",
        )
    return ok("duckdb", f"{duckdb}: `pump report` and `pump redrive` need no Spark here")


# App checks: what would stop an app from running, or make it run badly. No broker needed.


def app_findings(app: App, target: str) -> list[Finding]:
    """Look at an app as it was declared."""
    if not app.subscriptions:
        return [error("app", f"{target} subscribes to nothing", "app.subscribe(Subscription(…))")]
    findings = [ok("app", f"{target} loads; {len(app.subscriptions)} subscription(s)")]
    for subscription in app.subscriptions:
        findings += _subscription_findings(app, subscription)
    if not any(each.level is Level.ERROR for each in findings):
        findings += _remaining(app)
    return [*findings, *_data_folder(app)]


def _remaining(app: App) -> Iterator[Finding]:
    """What only the app as a whole can tell, such as two requests with one name."""
    try:
        app.check()
    except PumpError as fault:
        yield error_from("app", fault)


def _subscription_findings(app: App, subscription: Subscription) -> list[Finding]:
    subject = f"subscription {subscription.name}"
    found = [
        *_handling(app, subscription, subject),
        *_dead_letters(subscription, subject),
        *_lease_findings(subscription, subject),
    ]
    return found or [ok(subject, f"{request_name(subscription)} from queue {subscription.queue!r}")]


def _handling(app: App, subscription: Subscription, subject: str) -> Iterator[Finding]:
    if subscription.request is None or subscription.resolver is not None:
        return
    try:
        app.registry.check(subscription.request)
        Mapper().check(subscription.request)
    except PumpError as fault:
        yield error_from(subject, fault)


def _dead_letters(subscription: Subscription, subject: str) -> Iterator[Finding]:
    if subscription.dead_letter_queue is None:
        yield warning(
            subject,
            "has no dead_letter_queue: messages that keep failing are discarded",
            f"set dead_letter_queue={subscription.queue + '-dead'!r}",
        )
    elif subscription.on_routing_failure is OnRoutingFailure.DELETE:
        yield warning(
            subject,
            "deletes rejected messages when their queue cannot be reached",
            "set on_routing_failure='spill'",
        )


def _lease_findings(subscription: Subscription, subject: str) -> Iterator[Finding]:
    drain_s = subscription.drain_timeout.total_seconds()
    if not subscription.renew and drain_s > subscription.lease.total_seconds():
        yield warning(
            subject,
            f"a drain may take {format_duration(drain_s)}, but leases end after "
            f"{format_duration(subscription.lease.total_seconds())} and are not renewed: "
            f"messages would be handled twice",
            "set renew=True, lengthen lease, or shorten drain_timeout",
        )
    if subscription.max_lease is not None and drain_s > subscription.max_lease.total_seconds():
        yield warning(
            subject,
            f"a drain may take {format_duration(drain_s)}, longer than max_lease "
            f"({format_duration(subscription.max_lease.total_seconds())})",
            "lengthen max_lease, or shorten drain_timeout",
        )


def _data_folder(app: App) -> Iterator[Finding]:
    if not isinstance(app.spill, SqliteSpill):
        return
    folder = _nearest_existing(app.spill.path.absolute().parent)
    if os.access(folder, os.W_OK | os.X_OK):
        yield ok("data folder", f"{app.spill.path.parent} can be written")
        yield from _perishing(app, app.spill)
    else:
        yield error(
            "data folder",
            f"{folder} cannot be written, so rejected messages cannot be spilled",
            "give this user the right to, or choose another one with App(spill=…)",
        )


def _perishing(app: App, spill: SqliteSpill) -> Iterator[Finding]:
    spills = [each.on_routing_failure is OnRoutingFailure.SPILL for each in app.subscriptions]
    danger = perishing(spill.path) if any(spills) else None
    if danger is None:
        return
    what = (
        "spilled messages will be lost with it"
        if app.is_spill_chosen
        else "rejected messages are kept in their queue instead of spilled"
    )
    yield warning("spill", f"{spill.path} lies on {danger}: {what}", SPILL_REMEDY)


def _nearest_existing(folder: Path) -> Path:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


# Lease checks: does a lease last as long as handlers take, by what a running pump has seen?

_NEVER_LONG_S = 300.0
"""A lease up to this is not called too long: after a crash such a wait is harmless."""
_AMPLE = 10
_NEAR = 0.8


async def observed_times(app: App) -> tuple[dict[str, HandlerTimes], list[Finding]]:
    """The handler times on record, by subscription, and what to say about the record itself."""
    file = HandlerTimesFile.beside(app.spill)
    if file is None or not app.subscriptions:
        return {}, []
    recorded = await file.read()
    names = {each.name for each in app.subscriptions}
    observed = {name: times for name, times in recorded.items() if name in names}
    if not observed:
        remedy = "run the app for a while, and leases are compared with them"
        return {}, [ok("handler times", f"none on record in {file.path} yet", remedy)]
    newest_s = max(times.observed_at_s for times in observed.values())
    age = format_duration(SYSTEM_CLOCK.time_s() - newest_s)
    detail = f"of {len(observed)} subscription(s) in {file.path}, {age} old"
    return observed, [ok("handler times", detail)]


def lease_findings(
    subscription: Subscription, observed: Mapping[str, HandlerTimes], max_lease_s: float | None
) -> list[Finding]:
    """Compare a lease with what handlers took, and with the longest that the gateway grants."""
    subject = f"subscription {subscription.name}"
    found = list(_refused(subscription, subject, max_lease_s))
    times = observed.get(subscription.name)
    if times is None:
        return found
    found += _lost(subscription, subject, times)
    found += _too_short(subscription, subject, times)
    found += _at_the_ceiling(subscription, subject, times, max_lease_s)
    found += _too_long(subscription, subject, times)
    return found or [_as_it_should_be(subscription, subject, times)]


def _refused(
    subscription: Subscription, subject: str, max_lease_s: float | None
) -> Iterator[Finding]:
    lease_s = subscription.lease.total_seconds()
    if max_lease_s is not None and lease_s > max_lease_s:
        yield error(
            subject,
            f"the lease is {format_duration(lease_s)}, but the gateway grants "
            f"{format_duration(max_lease_s)} at most",
            "shorten lease; renewal keeps what takes longer",
        )


def _lost(subscription: Subscription, subject: str, times: HandlerTimes) -> Iterator[Finding]:
    if not times.lost_count:
        return
    lost = f"{times.lost_count:,} lease(s) ended before their message was settled"
    if subscription.renew:
        yield warning(
            subject,
            f"{lost}, though leases are renewed: those messages were delivered again",
            "look for lease.lost in the log: the broker was out of reach, or a handler kept the "
            "event loop busy (a handler that is a plain function runs in a thread)",
        )
    else:
        yield error(
            subject,
            f"{lost}, and none is renewed: those messages were delivered again",
            f"set renew=True, or lengthen lease "
            f"({format_duration(subscription.lease.total_seconds())})",
        )


def _too_short(subscription: Subscription, subject: str, times: HandlerTimes) -> Iterator[Finding]:
    if subscription.renew or times.lost_count:
        return
    lease_s = subscription.lease.total_seconds()
    # The lease runs from receipt, and a message may have to wait for those received before it.
    in_hand_s = times.p99_s * subscription.max_in_flight / subscription.concurrency
    if max(in_hand_s, times.max_s) > lease_s:
        yield warning(
            subject,
            f"handlers take {format_duration(times.p99_s)} (p99; {format_duration(times.max_s)} "
            f"at most), and a message may wait for others first; its lease ends after "
            f"{format_duration(lease_s)} and is not renewed: it would be handled twice",
            "set renew=True, lengthen lease, or shorten prefetch",
        )


def _at_the_ceiling(
    subscription: Subscription, subject: str, times: HandlerTimes, max_lease_s: float | None
) -> Iterator[Finding]:
    own_s = None if subscription.max_lease is None else subscription.max_lease.total_seconds()
    limits_s = [limit_s for limit_s in (own_s, max_lease_s) if limit_s is not None]
    if not subscription.renew or not limits_s or times.max_s <= _NEAR * min(limits_s):
        return
    is_own = own_s is not None and own_s == min(limits_s)
    yield warning(
        subject,
        f"a handler took {format_duration(times.max_s)}, and no lease is kept for longer than "
        f"{format_duration(min(limits_s))}",
        "split the work into smaller messages" + (", or lengthen max_lease" if is_own else ""),
    )


def _too_long(subscription: Subscription, subject: str, times: HandlerTimes) -> Iterator[Finding]:
    lease_s = subscription.lease.total_seconds()
    if not times.count or lease_s <= max(_NEVER_LONG_S, _AMPLE * times.max_s):
        return
    yield warning(
        subject,
        f"the lease is {format_duration(lease_s)}, but no handler took more than "
        f"{format_duration(times.max_s)}: after a crash, messages wait for the rest of it",
        "shorten lease" + ("; renewal keeps what takes longer" if subscription.renew else ""),
    )


def _as_it_should_be(subscription: Subscription, subject: str, times: HandlerTimes) -> Finding:
    lease = format_duration(subscription.lease.total_seconds())
    return ok(
        subject,
        f"handlers took {format_duration(times.p50_s)} (median), {format_duration(times.p99_s)} "
        f"(p99), {format_duration(times.max_s)} at most, of {times.count:,}; the lease is {lease}"
        f"{', renewed' if subscription.renew else ''}",
    )
