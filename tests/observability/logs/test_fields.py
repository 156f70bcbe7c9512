"""The allow-list: every field that a line of ours uses is on it, and nothing else is printed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
import structlog
from structlog.testing import capture_logs

from pump.cli.run_report import _COUNTS
from pump.observability.log import PLAIN, TEXTS, get_logger
from pump.observability.redaction import REDACTED
from tests.architecture.source import PACKAGES, Source, sources

METHODS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
STARRED = {"facts": {"handler", "attempt", "run_s"}, "_totals(performers)": set(_COUNTS)}
"""What `**…` in a log call stands for, where the module itself does not show it."""


@attrs.frozen
class LogCall:
    where: str
    fields: frozenset[str]


def log_calls(source: Source) -> Iterator[LogCall]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and _is_log_method(node.func):
            yield LogCall(f"{source.path}:{node.lineno}", frozenset(_fields(node, source)))


def _is_log_method(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr in METHODS
        and ast.unparse(node.value).rpartition(".")[2] in {"log", "_log", "_delivery_log"}
    )


def _fields(call: ast.Call, source: Source) -> Iterator[str]:
    for keyword in call.keywords:
        if keyword.arg is not None:
            yield keyword.arg
        elif isinstance(keyword.value, ast.Call) and keyword.value.keywords:
            # A function that is given named values and drops those that are None.
            yield from _fields(keyword.value, source)
        else:
            yield from _keys(keyword.value, source) or {f"**{ast.unparse(keyword.value)}"}


def _keys(starred: ast.expr, source: Source) -> set[str]:
    """The keys of the dict that a name was given, or that a function of the module returns."""
    known = STARRED.get(ast.unparse(starred))
    if known is not None:
        return known
    name = starred.func if isinstance(starred, ast.Call) else starred
    return {
        str(key.value)
        for home in ast.walk(source.tree)
        if (isinstance(home, ast.Assign) and ast.unparse(home.targets[0]) == ast.unparse(name))
        or (isinstance(home, ast.FunctionDef) and home.name == ast.unparse(name))
        for node in ast.walk(home)
        if isinstance(node, ast.Dict)
        for key in node.keys
        if isinstance(key, ast.Constant)
    }


def that_say(words: str) -> list[Source]:
    """The modules in whose text these words are: reading the others is in vain."""
    return [source for source in sources(*PACKAGES) if words in source.text]


@pytest.fixture(scope="module")
def calls() -> list[LogCall]:
    """Every call that logs a line, in all packages: read once, when the first test asks."""
    return [call for source in that_say("log.") for call in log_calls(source)]


def test_the_calls_are_found(calls: list[LogCall]) -> None:
    assert len(calls) > 50
    assert {"error", "subscription", "run_s", "age_s", "sampled"} <= set().union(
        *(call.fields for call in calls)
    )


def test_every_field_of_ours_is_on_the_allow_list(calls: list[LogCall]) -> None:
    """R61."""
    unknown = {
        f"{call.where}: {name}"
        for call in calls
        for name in call.fields - PLAIN - TEXTS - {"exc_info"}
    }

    assert sorted(unknown) == [], "add them to pump/observability/log.py, if they are safe"


def test_every_line_is_logged_where_it_is_written() -> None:
    """A method under another name would hide its fields from the test above."""
    aliases = [
        f"{source.path}:{node.lineno}"
        for source in that_say("log.")
        for node in _not_called(source)
    ]

    assert aliases == [], "call it at once, or use _log.log(level, event, ...)"


def _not_called(source: Source) -> Iterator[ast.Attribute]:
    called = {id(node.func) for node in ast.walk(source.tree) if isinstance(node, ast.Call)}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and _is_log_method(node) and id(node) not in called:
            yield node


def test_no_field_is_on_the_allow_list_twice() -> None:
    assert set() == PLAIN & TEXTS


def test_every_line_of_ours_passes_the_allow_list() -> None:
    """R61: a logger that is not `get_logger`'s would print anything."""
    others = [
        f"{source.path}:{node.lineno}"
        for source in that_say("structlog")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"structlog.get_logger", "structlog.wrap_logger"}
        and source.path != "pump/observability/log.py"
    ]

    assert others == []


def test_when_a_field_is_not_on_the_list_then_its_value_is_not_printed() -> None:
    """R61: whatever processors the application has."""
    with capture_logs() as lines:
        get_logger("pump.test").info("message.settled", colour="blue", queue="orders")

    assert lines == [
        {"event": "message.settled", "log_level": "info", "colour": REDACTED, "queue": "orders"}
    ]


def test_when_an_error_of_ours_quotes_a_url_then_its_password_is_not_printed() -> None:
    """R57."""
    with capture_logs() as lines:
        get_logger("pump.test").warning(
            "receive.failed", error="cannot reach amqp://ann:hunter2@host/"
        )

    assert lines[0]["error"] == f"cannot reach amqp://{REDACTED}@host/"


@pytest.mark.parametrize("given", ["the error", "true", "a tuple"])
def test_when_a_line_of_ours_has_an_exception_then_renderers_are_given_text(given: str) -> None:
    """R57, R61: a renderer that is handed the error may print the variables of its frames."""

    def fail(body: str) -> None:
        raise ValueError("broken, password=hunter2")

    with capture_logs() as lines:
        try:
            fail("a " + "secret")
        except ValueError as error:
            forms: dict[str, Any] = {
                "the error": error,
                "true": True,
                "a tuple": (type(error), error, error.__traceback__),
            }
            get_logger("pump.test").error("pump.failed", exc_info=forms[given])

    assert "exc_info" not in lines[0]
    assert lines[0]["exception"].startswith("Traceback")
    assert lines[0]["exception"].endswith(f"ValueError: broken, password={REDACTED}")
    assert "a secret" not in lines[0]["exception"]


def test_when_nothing_was_raised_then_there_is_no_exception_on_the_line() -> None:
    with capture_logs() as lines:
        get_logger("pump.test").error("pump.failed", exc_info=True)
        get_logger("pump.test").error("pump.failed", exc_info=None)

    assert [set(line) for line in lines] == [{"event", "log_level"}] * 2


def test_when_the_app_configured_structlog_then_its_processors_see_our_lines() -> None:
    seen: list[dict[str, Any]] = []

    def keep(logger: object, method: str, event: Any) -> Any:
        seen.append(dict(event))
        raise structlog.DropEvent

    structlog.configure(processors=[keep])

    get_logger("pump.test").info("pump.started", subscription="orders")

    assert seen == [{"event": "pump.started", "subscription": "orders"}]
