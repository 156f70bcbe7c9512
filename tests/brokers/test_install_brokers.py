"""The script that installs servers for the tests: where it may not, it says so and ends well."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.brokers import install_brokers
from tests.brokers.install_brokers import (
    OUR_POLICY,
    Server,
    last_words,
    obstacle,
    services_held_back,
)

MISSING = Server("NoSuchServer", "no-such-server", "/no/such/server", ())


def test_when_this_is_no_debian_then_the_line_says_so() -> None:
    assert "no apt-get" in str(obstacle("postgresql", 0, None))


def test_when_the_user_is_not_root_then_the_line_says_what_to_run() -> None:
    assert "sudo apt-get install rabbitmq-server" in str(
        obstacle("rabbitmq-server", 1000, "/usr/bin/apt-get")
    )


def test_when_nothing_speaks_against_it_then_there_is_no_obstacle() -> None:
    assert obstacle("postgresql", 0, "/usr/bin/apt-get") is None


def test_when_packages_are_installed_then_no_service_starts_and_no_trace_stays(
    tmp_path: Path,
) -> None:
    policy = tmp_path / "policy-rc.d"

    with services_held_back(policy):
        assert policy.read_text() == OUR_POLICY
        assert policy.stat().st_mode & 0o777 == 0o755

    assert list(tmp_path.iterdir()) == []


def test_when_the_machine_has_a_policy_of_its_own_then_it_stays(tmp_path: Path) -> None:
    policy = tmp_path / "policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 0\n")

    with services_held_back(policy):
        pass

    assert policy.read_text() == "#!/bin/sh\nexit 0\n"


def test_when_an_earlier_run_was_killed_then_its_policy_is_removed(tmp_path: Path) -> None:
    policy = tmp_path / "policy-rc.d"
    policy.write_text(OUR_POLICY)

    with services_held_back(policy):
        pass

    assert not policy.exists()


def test_when_apt_fails_then_its_own_words_are_repeated() -> None:
    assert last_words("Reading…\nE: Unable to locate package\nmore\n").startswith("E: Unable")
    assert last_words("") == "it said nothing"


def test_when_it_cannot_be_installed_then_there_is_one_loud_line_and_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(install_brokers, "obstacle", lambda package, user, apt: "no reason")

    install_brokers.main([MISSING])

    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith("NOSUCHSERVER IS NOT INSTALLED")


def test_when_the_lists_cannot_be_updated_then_those_that_are_there_are_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def apt_get(action: str, *_: str) -> None:
        asked.append(action)
        if action == "update":
            raise install_brokers.Impossible("a source is gone")

    monkeypatch.setattr(install_brokers, "_apt_get", apt_get)
    monkeypatch.setattr(Server, "is_there", lambda server: "install" in asked)
    monkeypatch.setattr(install_brokers, "obstacle", lambda package, user, apt: None)
    monkeypatch.setattr(install_brokers, "_disable", lambda services: None)
    monkeypatch.setattr(install_brokers, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(install_brokers, "POLICY", tmp_path / "policy-rc.d")

    install_brokers.main([MISSING])

    assert asked == ["update", "install"]
    printed = capsys.readouterr().out
    assert "a source is gone; going on" in printed
    assert "NOT INSTALLED" not in printed
