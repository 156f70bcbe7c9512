import pytest

from pump.cli.settings import EnvironmentSettings

from .conftest import Pump


def test_settings_come_from_variables_of_ours() -> None:
    settings = EnvironmentSettings.from_environment(
        {"PUMP_GATEWAY": "memory://", "PUMP_LOG_LEVEL": "debug", "PUMP_LOG_FORMAT": "json"}
    )

    assert settings == EnvironmentSettings(
        gateway="memory://", log_level="debug", log_format="json"
    )


def test_when_a_variable_is_empty_then_it_counts_as_absent() -> None:
    assert EnvironmentSettings.from_environment({"PUMP_GATEWAY": ""}) == EnvironmentSettings()


def test_when_the_environment_names_a_gateway_then_it_is_used(
    pump: Pump, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUMP_GATEWAY", "local://here")
    pump("send", "greetings", "{}", "--create")

    result = pump("queues", "--gateway", "local://here", "--json")

    assert '"greetings"' in result.stdout


def test_when_the_environment_holds_a_wrong_level_then_it_is_a_usage_error(
    pump: Pump, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUMP_LOG_LEVEL", "loud")

    result = pump("run", "greeting:app")

    assert result.exit_code == 2
    assert "loud" in result.stderr
