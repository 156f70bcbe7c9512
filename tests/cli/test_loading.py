"""From `module:app` to an App: each way that goes wrong is one clear line, and exit code 3."""

from pathlib import Path

import pytest

from .conftest import Pump, Write
from .programs import pump as run_pump


def test_when_there_is_no_such_module_then_a_near_one_is_offered(pump: Pump, write: Write) -> None:
    write("greeting.py", "")

    result = pump("run", "greetin:app")

    assert result.exit_code == 3
    assert "error: there is no module 'greetin'" in result.stderr
    assert "did you mean greeting:app?" in result.stderr
    assert "Traceback" not in result.stderr


def test_when_the_parent_package_is_missing_then_it_is_named(pump: Pump) -> None:
    result = pump("run", "nowhere.to.be.found:app")

    assert result.exit_code == 3
    assert "there is no module 'nowhere'" in result.stderr


def test_when_the_attribute_is_missing_then_the_modules_apps_are_named(
    pump: Pump, write: Write
) -> None:
    write("shop.py", "from pump import App\norders = App('memory://')\n")

    result = pump("run", "shop:app")

    assert result.exit_code == 3
    assert "has no 'app'; use shop:orders" in result.stderr


def test_when_it_is_not_an_app_then_its_kind_is_said(pump: Pump, write: Write) -> None:
    write("shop.py", "app = {}\n")

    result = pump("run", "shop:app")

    assert result.exit_code == 3
    assert "shop:app is not an App but a dict" in result.stderr


def test_when_a_file_is_named_then_the_module_is_offered(pump: Pump) -> None:
    result = pump("run", "src/shop.py")

    assert result.exit_code == 3
    assert "write src.shop:app" in result.stderr


@pytest.mark.parametrize("target", ["", ":", "a b:app", "1st:app", "..shop:app"])
def test_when_the_target_is_misspelt_then_the_form_is_shown(pump: Pump, target: str) -> None:
    result = pump("run", target)

    assert result.exit_code == 3
    assert "write module:app" in result.stderr


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("def broken():\n    return 1 / 0\nbroken()\n", "ZeroDivisionError: division by zero"),
        ("import nowhere_to_be_found\n", "ModuleNotFoundError: No module named"),
        ("app = (\n", "SyntaxError: '(' was never closed"),
        ("raise SystemExit('not today')\n", "SystemExit: not today"),
    ],
    ids=["error", "import", "syntax", "exit"],
)
def test_when_the_import_fails_then_the_users_traceback_is_shown_and_not_ours(
    pump: Pump, write: Write, text: str, error: str
) -> None:
    path = write("shop.py", text)

    result = pump("run", "shop:app")

    assert result.exit_code == 3
    assert str(path) in result.stderr
    assert "loading.py" not in result.stderr
    assert "importlib" not in result.stderr
    assert f"error: importing 'shop' failed: {error}" in result.stderr


def test_when_no_attribute_is_named_then_it_is_app(pump: Pump, write: Write) -> None:
    write("shop.py", "from pump import App\napp = App('memory://')\n")

    result = pump("run", "shop")

    assert result.exit_code == 3
    assert "nothing to run" in result.stderr


def test_when_a_handler_is_missing_then_the_configuration_is_wrong(
    pump: Pump, write: Write
) -> None:
    write(
        "shop.py",
        """
        from pump import App, Command, Subscription

        class Greet(Command):
            name: str

        app = App("memory://")
        app.subscribe(Subscription(queue="greetings", request=Greet))
        """,
    )

    result = pump("run", "shop:app")

    assert result.exit_code == 3
    assert result.stderr.splitlines()[-1].startswith("error: no handler is registered for Greet")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("url", ["nonsense", "ftp://host", "local://x?colour=blue", "memory://a/b"])
def test_when_the_gateway_is_wrong_then_the_configuration_is_wrong(
    pump: Pump, greetings: object, url: str
) -> None:
    result = pump("run", "greeting:app", "--gateway", url)

    assert result.exit_code == 3
    assert result.stderr.splitlines()[-1].startswith("error: ")


def test_when_a_gateway_is_not_installed_then_the_cure_is_said(
    pump: Pump, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R77."""
    monkeypatch.setattr("pump.versions.installed", lambda package: None)

    result = pump("queues", "--gateway", "amqp://guest:secret@host/")

    assert result.exit_code == 3
    assert "pip install 'pumphouse[rabbitmq]'" in result.stderr
    assert "secret" not in result.stderr


@pytest.mark.parametrize(
    ("value", "code"), [("greetings=0", 2), ("greetings", 2), ("greetings=x", 2), ("other=2", 3)]
)
def test_when_a_concurrency_is_wrong_then_the_option_is_refused(
    pump: Pump, greetings: object, value: str, code: int
) -> None:
    result = pump("run", "greeting:app", "--concurrency", value)

    assert result.exit_code == code
    assert "error: " in result.stderr


@pytest.mark.parametrize("name", ["handlers", "gateways", "pump"])
def test_when_a_file_shadows_a_package_of_ours_then_it_is_named_with_the_remedy(
    pump: Pump, write: Write, name: str
) -> None:
    path = write(f"{name}.py", "")

    result = pump("run", "nothing:app", "--log-format", "console")

    assert f"warning: {path} stands in front of" in result.stderr
    assert "rename it" in result.stderr


@pytest.mark.timeout(300)
@pytest.mark.parametrize("line", ["from handlers import Handler", "import handlers.base"])
def test_when_such_a_file_breaks_an_app_then_every_command_says_what_to_rename(
    folder: Path, write: Write, line: str
) -> None:
    path = write("handlers.py", "")
    write("shop.py", f"{line}\n")

    # A process of its own: here our package was imported long ago.
    result = run_pump("send", "orders", "{}", "--app", "shop:app", folder=folder)

    assert result.returncode == 3
    assert f"your {path} stands in front of Pumphouse's own package" in result.stderr
    assert "rename it, to order_handlers.py" in result.stderr
