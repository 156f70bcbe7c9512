"""The repository's own files: pins without hosts, documented modules, safe names."""

import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest

from .rules import missing_docstring
from .source import PACKAGES, ROOT, Source, sources

REQUIREMENTS = sorted((ROOT / "requirements").glob("*.txt"))
HASHES = r"( --hash=sha256:[0-9a-f]{64})+"
PIN = re.compile(rf"[a-z0-9][a-z0-9.-]*(\[[a-z0-9,-]+\])?==[^\s;@/]+( ; [^/@]+?)?{HASHES}")

HASH = f"--hash=sha256:{'0' * 64}"


def logical_lines(text: str) -> list[str]:
    """The lines of a requirement file, those that go on joined."""
    return re.sub(r"\s*\\\n\s*", " ", text).splitlines()


def unpinned(text: str) -> list[str]:
    """The lines that are anything but `name==version ; marker` with its hashes: hosts, paths,
    options, ranges.
    """
    return [line for line in logical_lines(text) if not PIN.fullmatch(line.strip())]


def pinned_names(path: Path) -> set[str]:
    return {re.split(r"[=\[]", line)[0] for line in logical_lines(path.read_text())}


@pytest.mark.parametrize("path", REQUIREMENTS, ids=lambda path: path.name)
def test_requirement_files_hold_pins_and_no_index_address(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    assert text.strip()
    assert unpinned(text) == []


@pytest.mark.parametrize(
    "line",
    [
        "--index-url https://example.org/simple",
        "--extra-index-url https://example.org/simple",
        "--find-links /some/where",
        "attrs @ https://example.org/attrs.whl",
        "attrs @ file:///some/where/attrs.whl",
        "-e .",
        "attrs>=24",
        "# via /home/someone/pyproject.toml",
        "attrs==24.1.0",
        f"attrs==24.1.0 --hash=md5:{'0' * 32}",
    ],
)
def test_when_a_requirement_line_is_not_a_pin_then_it_is_reported(line: str) -> None:
    assert unpinned(f"cattrs==24.1.0 \\\n    {HASH} \\\n    {HASH}\n{line}\n") == [line]


def test_when_a_pin_has_a_marker_then_it_is_accepted() -> None:
    pins = ["uvloop==0.21.0 ; sys_platform != 'win32'", "coverage[toml]==7.6.1"]

    assert unpinned("".join(f"{pin} \\\n    {HASH}\n" for pin in pins)) == []


def test_the_runtime_pins_cover_the_declared_dependencies() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {re.split(r"[<>=!~;\[ ]", line)[0] for line in project["dependencies"]}

    missing = declared - pinned_names(ROOT / "requirements" / "runtime.txt")

    assert missing == set(), "run `make lock`"


def test_a_package_has_one_lowest_version_in_all_extras() -> None:
    """R77: `make test-minimum` installs these together, and would try the highest of several."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    extras = re.findall(r"^EXTRAS := (.+)$", makefile, re.MULTILINE)[0].split()
    lowest: dict[str, set[str]] = {}
    for line in chain(*(project["optional-dependencies"][extra] for extra in extras)):
        name, version = re.match(r"([\w-]+)[^;]*?[>=]=([\d.]+)", line).groups()  # type: ignore[union-attr]
        lowest.setdefault(name, set()).add(version)

    assert {name: versions for name, versions in lowest.items() if len(versions) > 1} == {}


@pytest.mark.parametrize(("smaller", "larger"), [("runtime", "dev"), ("dev", "bench")])
def test_each_requirement_file_extends_the_one_before(smaller: str, larger: str) -> None:
    pins = [
        set(logical_lines((ROOT / "requirements" / f"{name}.txt").read_text()))
        for name in (smaller, larger)
    ]

    assert pins[0] - pins[1] == set(), "run `make lock`"


def test_every_public_module_has_a_docstring() -> None:
    missing = [str(found) for source in sources(*PACKAGES) for found in missing_docstring(source)]

    assert not missing, "\n".join(missing)


@pytest.mark.parametrize("path", ["pump/a.py", "pump/__init__.py"])
def test_when_a_public_module_has_no_docstring_then_it_is_reported(path: str) -> None:
    assert list(missing_docstring(Source(path, "x = 1\n")))


def test_when_a_private_module_has_no_docstring_then_it_is_accepted() -> None:
    assert list(missing_docstring(Source("pump/_core.py", "x = 1\n"))) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_sample_stands_in_front_of_a_package(package: str) -> None:
    assert list((ROOT / "samples").rglob(f"{package}.py")) == []
