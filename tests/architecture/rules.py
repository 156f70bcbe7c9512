"""The rules of the house, each a pure function from a source to its violations."""

import ast
import re
from collections.abc import Iterator

from .source import PACKAGES, Source, Violation

MAX_LINES = 700
VENDORS = {
    "aio_pika",
    "aioboto3",
    "aiohttp",
    "azure",
    "boto3",
    "cryptography",
    "nats",
    "opentelemetry",
    "prometheus_client",
    "psycopg",
    "pyarrow",
    "pyspark",
}
VENDOR_HOMES = (
    "pump/spark/",
    "pump/observability/otel/",
    "pump/crypto/aes.py",
    "pump/crypto/kms.py",
    "pump/stores/ledger/parquet.py",
    "pump/report/parquet_files.py",
)
"""Loaded only by those who use them."""
ALLOWED_TOPS = {
    "pump": {"pump"},
    "gateways": {"pump", "gateways"},
    "handlers": {"pump", "handlers"},
}
FORBIDDEN_TOPS = {*PACKAGES, "tests", "samples", "benchmarks"}

BANNED = {
    "time.time",
    "time.sleep",
    "asyncio.sleep",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
    "datetime.date.today",
}
# A generator that is passed in is an argument; only the hidden global one is banned.
RANDOM_TYPES = {"random.Random", "random.SystemRandom"}
REAL_TIME_PATHS = re.compile(
    r"pump/clock\.py|samples/.*|benchmarks/.*|tests/kill/.*|tests/(.*/)?child_[^/]*\.py"
)
WAIVED_BAN = re.compile(r"#\s*noqa:[^#]*\bTID251\b")

BROAD_HOME = "pump/loop/processing.py"
SETTLING_HOMES = frozenset({"pump/errors.py", "pump/loop/processing.py"})
WAIVED_BROAD = re.compile(r"#\s*broad:\s*\S")


def wrong_arrows(source: Source) -> Iterator[Violation]:
    """Packages point only at pump: handlers → pump ← gateways."""
    allowed = ALLOWED_TOPS.get(source.top, FORBIDDEN_TOPS)
    for found in source.imports:
        top = found.parts[0]
        if top in FORBIDDEN_TOPS and top not in allowed:
            yield source.violation(found.line, f"{source.top} must not import {top} ({found.name})")


def vendor_imports(source: Source) -> Iterator[Violation]:
    """`import pump` loads no vendor package; a few modules that it does not load may."""
    if source.top != "pump" or source.path.startswith(VENDOR_HOMES):
        return
    for found in source.imports:
        if found.is_at_import_time and found.parts[0] in VENDORS:
            yield source.violation(found.line, f"pump must not load {found.parts[0]} when imported")


def gateways_importing_each_other(source: Source) -> Iterator[Violation]:
    """A gateway imports itself, pump, and shared folders that start with `_`."""
    if source.top != "gateways" or len(source.package) < 2:
        return
    own = source.package[1]
    for found in source.imports:
        other = found.parts[1] if len(found.parts) > 1 and found.parts[0] == "gateways" else own
        if other != own and not other.startswith("_"):
            yield source.violation(found.line, f"gateway {own} must not import gateway {other}")


def absolute_own_imports(source: Source) -> Iterator[Violation]:
    """Inside a package, imports are relative."""
    for found in source.imports:
        if source.top in PACKAGES and not found.is_relative and found.parts[0] == source.top:
            yield source.violation(found.line, f"import {found.name} relatively")


def too_long(source: Source) -> Iterator[Violation]:
    """A module of more than 700 lines is split."""
    if len(source.lines) > MAX_LINES:
        message = f"{len(source.lines)} lines; split at {MAX_LINES}"
        yield source.violation(MAX_LINES + 1, message)


def hidden_time_and_randomness(source: Source) -> Iterator[Violation]:
    """Time and randomness come in through pump/clock.py or as arguments.

    A line that ruff is told to accept (`noqa: TID251`) is accepted here too.
    """
    if REAL_TIME_PATHS.fullmatch(source.path):
        return
    names = _local_names(source)
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Attribute | ast.Name):
            continue
        name = _resolve(node, names)
        if _is_banned(name) and not WAIVED_BAN.search(source.line(node.lineno)):
            yield source.violation(node.lineno, f"{name} outside pump/clock.py")


def swallowed_base_exceptions(source: Source) -> Iterator[Violation]:
    """Whoever catches BaseException raises it again on every path.

    Two places settle it instead: where handlers end, and where an error is asked for its text.
    """
    for line, names, handler in _catches(source):
        if source.path in SETTLING_HOMES and WAIVED_BROAD.search(source.line(line)):
            continue
        if "BaseException" in names and not (handler and _always_reraises(handler)):
            yield source.violation(line, "BaseException is caught and not re-raised")


def broad_excepts(source: Source) -> Iterator[Violation]:
    """`except Exception` lives in pump/loop/processing.py, or says `# broad: <reason>`."""
    if source.path == BROAD_HOME:
        return
    for line, names, _ in _catches(source):
        if "Exception" in names and not WAIVED_BROAD.search(source.line(line)):
            yield source.violation(line, "broad except without `# broad: <reason>`")


def missing_docstring(source: Source) -> Iterator[Violation]:
    """A public module says in its first line what it is for."""
    name = source.path.rsplit("/", 1)[-1].removesuffix(".py")
    is_private = name.startswith("_") and name not in {"__init__", "__main__"}
    if not is_private and not ast.get_docstring(source.tree):
        yield source.violation(1, "public module without a docstring")


def _local_names(source: Source) -> dict[str, str]:
    names: dict[str, str] = {}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.asname or alias.name.split(".")[0]
                names[bound] = alias.name if alias.asname else bound
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _resolve(node: ast.expr, names: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return names.get(node.id, "")
    if isinstance(node, ast.Attribute):
        base = _resolve(node.value, names)
        return f"{base}.{node.attr}" if base else ""
    return ""


def _is_banned(name: str) -> bool:
    return name in BANNED or (
        name.startswith("random.") and not any(name.startswith(kind) for kind in RANDOM_TYPES)
    )


Catch = tuple[int, set[str], ast.ExceptHandler | None]


def _catches(source: Source) -> Iterator[Catch]:
    """Each place that stops exceptions: its line, their names, its handler if it has one."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ExceptHandler):
            yield node.lineno, _names(node.type), node
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
            yield node.lineno, {ast.unparse(kind) for kind in node.args}, None


def _names(kind: ast.expr | None) -> set[str]:
    if kind is None:
        return {"BaseException"}
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return {ast.unparse(each).removeprefix("builtins.") for each in kinds}


def _always_reraises(handler: ast.ExceptHandler) -> bool:
    leaves = any(
        isinstance(node, ast.Return | ast.Break | ast.Continue)
        for statement in handler.body
        for node in ast.walk(statement)
    )
    return not leaves and _ends_in_reraise(handler.body, handler.name)


def _ends_in_reraise(body: list[ast.stmt], caught: str | None) -> bool:
    last = body[-1] if body else None
    if isinstance(last, ast.Raise):
        return last.exc is None or (isinstance(last.exc, ast.Name) and last.exc.id == caught)
    if isinstance(last, ast.If):
        return all(_ends_in_reraise(branch, caught) for branch in (last.body, last.orelse))
    if isinstance(last, ast.Try):
        return _ends_in_reraise(last.finalbody or last.body, caught)
    return False
