"""`pump new`: an app whose test passes."""

import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Pump, Write
from .programs import PATIENCE_S, environment, pump as run_pump


@pytest.mark.timeout(180)
def test_a_new_apps_test_passes(pump: Pump, folder: Path) -> None:
    pump("new", "greetings")

    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error"],
        cwd=folder / "greetings",
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )

    assert result.returncode == 0, result.stdout + result.stderr
    assert "2 passed" in result.stdout


@pytest.mark.timeout(180)
def test_a_new_app_runs_and_the_doctor_finds_no_fault(pump: Pump, folder: Path) -> None:
    pump("new", "My_Shop")
    shop = folder / "My_Shop"

    sent = run_pump("send", "my-shop", '{"name": "Ada"}', "--app", "app:app", folder=shop)
    ran = run_pump("run", "app:app", "--until-empty", folder=shop)
    examined = run_pump("doctor", "app:app", folder=shop)

    assert (sent.returncode, ran.returncode) == (0, 0)
    assert ran.stdout == "Hello, Ada!\n"
    assert examined.returncode == 0
    assert "0 error(s), 0 warning(s)" in examined.stdout


def test_a_new_app_stands_in_front_of_no_package_of_ours(pump: Pump, folder: Path) -> None:
    pump("new", "greetings")

    names = {path.name for path in (folder / "greetings").rglob("*")}

    assert names == {"app.py", "tests", "test_app.py", "README.md", "pyproject.toml", ".gitignore"}


def test_the_next_steps_are_said(pump: Pump) -> None:
    result = pump("new", "greetings")

    assert "  cd greetings\n  pytest\n  pump run app:app\n" in result.stdout
    assert "pump send greetings " in result.stdout


def test_when_made_in_the_working_folder_then_there_is_no_need_to_go_there(
    pump: Pump, folder: Path
) -> None:
    result = pump("new", "greetings", "--dir", ".")

    assert (folder / "app.py").exists()
    assert "cd " not in result.stdout


def test_when_a_file_is_there_already_then_nothing_is_written(
    pump: Pump, write: Write, folder: Path
) -> None:
    write("greetings/README.md", "mine")

    result = pump("new", "greetings")

    assert result.exit_code == 2
    assert "has README.md already" in result.stderr
    assert [path.name for path in (folder / "greetings").iterdir()] == ["README.md"]
    assert (folder / "greetings/README.md").read_text() == "mine"


@pytest.mark.parametrize("name", ["", "1st", "a/b", "../up", "a b", "handlers", "pump", "gateways"])
def test_when_a_name_cannot_be_used_then_it_is_refused(pump: Pump, folder: Path, name: str) -> None:
    result = pump("new", name)

    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert list(folder.iterdir()) == []
