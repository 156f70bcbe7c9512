"""The command line, given secrets in every argument, file and variable that takes one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from click.testing import CliRunner, Result

from pump.cli.root import cli

from .secrets_everywhere import ACCESS_KEY_ID, AWS_SECRET, BODY, HEADER, PASSWORD, leaked

Pump = Callable[..., Result]
BROKEN_URL = f"amqp://guest:{PASSWORD}@broker/"
ORDER = f'{{"text": "{BODY}", "fate": "%s"}}'

SHOP = """
    from tests.observability.logs.secrets_everywhere import Shop

    shop = Shop("local://", spill="spill.db")
    app = shop.app
"""


@pytest.fixture
def pump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pump]:
    """`pump(...)` in this process, in a folder with an app in secret_shop.py."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", AWS_SECRET)
    for name in ("PUMP_GATEWAY", "PUMP_LOG_LEVEL", "PUMP_LOG_FORMAT", "PUMP_LOG_SAMPLE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "secret_shop.py").write_text(dedent(SHOP), encoding="utf-8")

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(cli, arguments, prog_name="pump")

    yield call
    for name in ("secret_shop", "broken_shop"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("format", ["json", "console"])
def test_when_messages_are_sent_and_pumped_then_no_secret_is_printed(
    format: str, pump: Pump
) -> None:
    """R57, R61."""
    header = ("--header", f"authorization={HEADER}", "--type", "Order")
    sent = [
        pump("send", "orders", ORDER % fate, "--create", *header)
        for fate in ("fine", "failing", "refused")
    ]

    options = ("--until-empty", "--log-level=debug", "--log-format", format)
    ran = pump("run", "secret_shop:app", *options)
    looked = [pump("doctor", "secret_shop:app"), pump("queues")]
    examined = pump("doctor", "secret_shop:app", "--json")

    results = [*sent, ran, *looked, examined]
    assert [result.exit_code for result in (*sent, ran)] == [0] * 4
    assert leaked(*(result.output + result.stderr for result in results)) == []
    assert ran.stderr.count("message.settled") == 4
    # They were not lost on the way: looking at a queue is what shows a body.
    assert BODY in pump("peek", "orders-dead", "--json").output


@pytest.mark.parametrize(
    "arguments",
    [
        ("send", "orders", f'{{"text": "{BODY}"'),
        ("send", "nowhere", ORDER % "fine", "--header", f"token={HEADER}"),
        ("send", "orders", ORDER % "fine", "--gateway", BROKEN_URL),
        ("send", "orders", ORDER % "fine", "--gateway", f"sqs://key:{PASSWORD}@eu-west-1"),
        ("run", "secret_shop:app", "--gateway", BROKEN_URL, "--log-level=debug"),
        ("queues", "--gateway", BROKEN_URL),
        ("doctor", "--gateway", BROKEN_URL),
        ("doctor", "--gateway", BROKEN_URL, "--json"),
        ("spill", "flush", "--gateway", BROKEN_URL),
    ],
)
def test_when_a_command_fails_then_it_quotes_no_secret(
    arguments: tuple[str, ...], pump: Pump
) -> None:
    """R57."""
    result = pump(*arguments)

    assert result.exit_code != 0
    assert leaked(result.output, result.stderr) == []
    assert result.output + result.stderr != ""


def test_when_the_gateway_is_in_the_environment_then_failing_does_not_tell_it(
    pump: Pump, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R57."""
    monkeypatch.setenv("PUMP_GATEWAY", BROKEN_URL)

    result = pump("queues")

    assert result.exit_code != 0
    assert leaked(result.output, result.stderr) == []


def test_when_the_apps_own_code_breaks_with_a_url_then_its_password_is_not_printed(
    pump: Pump, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R57: the traceback is the user's, and the driver's error in it quotes the URL."""
    monkeypatch.setenv("BROKER", BROKEN_URL)
    program = 'import os\n\nraise ConnectionError("cannot reach " + os.environ["BROKER"])\n'
    (tmp_path / "broken_shop.py").write_text(program, encoding="utf-8")

    result = pump("run", "broken_shop:app")

    printed = result.output + result.stderr
    assert "ConnectionError: cannot reach amqp://[redacted]@broker/" in printed
    assert leaked(printed) == []
