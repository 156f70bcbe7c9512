"""The built wheel holds everything, and works where the sources are out of reach."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.slow]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, just built."""
    made = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(made)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=120,
    )
    [built] = made.glob("*.whl")
    return zipfile.ZipFile(built)


@pytest.fixture(scope="module")
def installed(wheel: zipfile.ZipFile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's contents, as `pip install --target` would leave it."""
    site = tmp_path_factory.mktemp("site")
    wheel.extractall(site)
    return site


def run(*command: str, site: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_it_holds_our_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    # Not as installed: whoever has run it from there has left compiled code.
    names = wheel.namelist()
    found = {name.partition("/")[0] for name in names if ".dist-info/" not in name}

    assert found == {"pump", "gateways", "handlers"}
    assert {f"{name}/py.typed" for name in found} <= set(names)
    assert {"pump/report/page.html.jinja", "pump/report/page.css"} <= set(names)
    assert [name for name in names if "__pycache__" in name] == []


def test_a_new_app_is_made_tested_and_run_from_it(installed: Path, tmp_path: Path) -> None:
    made = run("-m", "pump", "new", "shop", site=installed, cwd=tmp_path)
    shop = tmp_path / "shop"
    tested = run("-m", "pytest", "-q", "-p", "no:cacheprovider", site=installed, cwd=shop)
    where = run("-c", "import pump; print(pump.__file__)", site=installed, cwd=shop)
    sent = run(
        *("-m", "pump", "send", "shop", '{"name": "Ada"}', "--app", "app:app", "--create"),
        site=installed,
        cwd=shop,
    )
    ran = run("-m", "pump", "run", "app:app", "--until-empty", site=installed, cwd=shop)

    assert made.returncode == 0, made.stderr
    assert tested.returncode == 0, tested.stdout
    assert where.stdout.startswith(str(installed))
    assert sent.returncode == 0, sent.stderr
    assert ran.returncode == 0, ran.stderr
    assert "Hello, Ada!" in ran.stdout
