"""`pump doctor`: every finding with its remedy."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from pump import Message
from pump.cli import doctor
from pump.findings import HandlerTimes
from pump.stores import spill
from pump.stores.handler_times import HandlerTimesFile
from pump.stores.spill import SpilledMessage, SqliteSpill

from .conftest import Pump, Write

APP = """
    from datetime import timedelta
    from pump import App, Command, Subscription

    app = App({gateway!r})

    class Greet(Command):
        name: str

    {handler}

    app.subscribe(Subscription(queue="greetings", request=Greet, {settings}))
"""
HANDLER = "app.register(Greet, lambda request: None)"
DEAD = "dead_letter_queue='greetings-dead'"


EXAMINED = APP.format(
    gateway="placeholder", handler=HANDLER, settings=f"{DEAD}, make_channels='validate'"
).replace(
    "app = App('placeholder')",
    """
    from gateways.memory import MemoryGateway
    from pump.errors import ConnectionFailed
    from pump.findings import error, ok

    class Examined(MemoryGateway):
        def admin(self):
            raise AssertionError("the names of all queues are not asked for")

        async def examine(self, subscriptions, observed):
            {body}

    app = App(Examined())
""",
)


def an_app(settings: str = DEAD, handler: str = HANDLER, gateway: str = "local://") -> str:
    return APP.format(settings=settings, handler=handler, gateway=gateway)


def findings(pump: Pump, *arguments: str) -> dict[str, list[dict[str, Any]]]:
    """What was found, by level."""
    found: dict[str, list[dict[str, Any]]] = {"ok": [], "warning": [], "error": []}
    for finding in json.loads(pump("doctor", *arguments, "--json").stdout)["findings"]:
        found[finding["level"]].append(finding)
    return found


def test_when_all_is_well_then_the_exit_code_is_0(pump: Pump, greetings: Path) -> None:
    result = pump("doctor", "greeting:app")

    assert result.exit_code == 0
    assert "ok      python: 3." in result.stdout
    assert "ok      gateway: local:// answered" in result.stdout
    assert result.stdout.endswith("0 error(s), 0 warning(s)\n")


def test_without_an_app_the_machine_and_the_gateway_are_looked_at(pump: Pump) -> None:
    subjects = {finding["subject"] for finding in findings(pump)["ok"]}

    assert {"python", "packages", "gateways", "shadowing", "gateway", "spill"} <= subjects
    assert "app" not in subjects


def test_when_an_extra_is_not_installed_then_the_cure_is_said(
    pump: Pump, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = doctor.installed_version
    monkeypatch.setattr(
        doctor,
        "installed_version",
        lambda name: None if name == "watchfiles" else installed(name),
    )

    [finding] = [each for each in findings(pump)["ok"] if each["subject"] == "extra reload"]

    assert finding["remedy"] == "to use it: pip install 'pumphouse[reload]'"


def test_when_a_package_is_missing_then_it_is_an_error(
    pump: Pump, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "installed_version", lambda name: None)

    result = pump("doctor")

    assert result.exit_code == 1
    assert "error   packages: missing: " in result.stdout


def test_when_a_file_shadows_a_package_of_ours_then_it_is_named_with_the_remedy(
    pump: Pump, write: Write
) -> None:
    path = write("handlers.py", "")

    [finding] = findings(pump)["warning"]

    assert finding["subject"] == "shadowing"
    assert str(path) in finding["detail"]
    assert finding["remedy"].startswith("rename it")


def test_when_the_app_cannot_be_loaded_then_the_reason_is_an_error(pump: Pump) -> None:
    result = pump("doctor", "nowhere:app")

    assert result.exit_code == 1
    assert "error   app: there is no module 'nowhere'" in result.stdout


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("", "has no dead_letter_queue"),
        (f"{DEAD}, on_routing_failure='delete'", "deletes rejected messages"),
        (f"{DEAD}, renew=False, lease=timedelta(seconds=5)", "a drain may take 30.0s"),
        (f"{DEAD}, lease=timedelta(seconds=5), max_lease=timedelta(seconds=9)", "max_lease (9.0s)"),
    ],
    ids=["no dead letters", "deletes", "lease shorter than drain", "max lease"],
)
def test_when_a_subscription_has_a_drawback_then_it_is_a_warning_with_a_remedy(
    pump: Pump, write: Write, settings: str, said: str
) -> None:
    write("shop.py", an_app(settings))

    [finding] = findings(pump, "shop:app")["warning"]

    assert finding["subject"] == "subscription greetings"
    assert said in finding["detail"]
    assert finding["remedy"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (an_app(handler=""), "no handler is registered for Greet"),
        (an_app(handler=f"{HANDLER}; {HANDLER}"), "takes exactly one handler"),
        (an_app(f"{DEAD}, make_channels='validate'"), "queue 'greetings' does not exist"),
        (an_app(gateway="ftp://host"), "use one of"),
        ("from pump import App\napp = App()\n", "subscribes to nothing"),
    ],
    ids=["no handler", "two handlers", "no queue", "no gateway", "no subscription"],
)
def test_when_an_app_cannot_run_then_it_is_an_error(
    pump: Pump, write: Write, text: str, said: str
) -> None:
    write("shop.py", text)

    result = pump("doctor", "shop:app")

    assert result.exit_code == 1
    assert said in result.stdout


def test_when_the_broker_cannot_be_reached_then_it_is_an_error(pump: Pump, write: Write) -> None:
    write("queues", "not a folder")

    [finding] = findings(pump, "--gateway", "local://queues")["error"]

    assert finding["subject"] == "gateway"
    assert "queues" in finding["detail"]


def test_when_messages_are_spilled_then_flushing_is_advised(pump: Pump) -> None:
    spilled = SpilledMessage(message=Message(body=b"{}"), destination="dead", spilled_at_s=0)
    asyncio.run(SqliteSpill(".pumphouse/spill.db").put(spilled))

    [finding] = findings(pump)["warning"]

    assert finding["detail"] == "1 rejected message(s) wait for their queue"
    assert "pump spill flush" in finding["remedy"]


def test_when_the_data_folder_cannot_be_written_then_it_is_an_error(
    pump: Pump, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("shop.py", an_app())
    monkeypatch.setattr("os.access", lambda path, mode: False)

    [finding] = findings(pump, "shop:app")["error"]

    assert finding["subject"] == "data folder"
    assert "App(spill=" in finding["remedy"]


def test_json_counts_what_was_found(pump: Pump, write: Write) -> None:
    write("shop.py", an_app(""))

    report = json.loads(pump("doctor", "shop:app", "--json").stdout)

    assert (report["errors"], report["warnings"]) == (0, 1)
    assert set(report["findings"][0]) == {"level", "subject", "detail", "remedy"}


# -- gateways that examine their queues themselves ----------------------------------------------


def test_when_the_gateway_examines_its_queues_then_its_findings_are_told(
    pump: Pump, write: Write
) -> None:
    body = "return [error(f'queue {each.queue}', 'is odd', 'even it') for each in subscriptions]"
    write("shop.py", EXAMINED.format(body=body))

    result = pump("doctor", "shop:app")

    assert result.exit_code == 1
    assert "error   queue greetings: is odd\n        → even it" in result.stdout
    assert "ok      gateway: memory:// answered, and was examined in" in result.stdout


def test_when_the_gateway_examines_then_it_is_told_what_was_observed(
    pump: Pump, write: Write
) -> None:
    body = "return [ok('seen', f'{name} {times.count}') for name, times in observed.items()]"
    write("shop.py", EXAMINED.format(body=body))
    on_record(greetings=7, others=8)

    assert "ok      seen: greetings 7\n" in pump("doctor", "shop:app").stdout


def test_when_an_examination_fails_then_the_broker_cannot_be_reached(
    pump: Pump, write: Write
) -> None:
    body = "raise ConnectionFailed('sqs', 'no route')"
    write("shop.py", EXAMINED.format(body=body))

    [finding] = findings(pump, "shop:app")["error"]

    assert finding["subject"] == "gateway"
    assert finding["detail"] == "cannot reach sqs: no route"


# -- handler times ------------------------------------------------------------------------------


def on_record(max_s: float = 1.0, **counts: int) -> None:
    """Have a pump leave its record in the working folder."""
    times = {
        name: HandlerTimes(
            count=count, mean_s=max_s, p50_s=max_s, p99_s=max_s, max_s=max_s, observed_at_s=0.0
        )
        for name, count in counts.items()
    }
    asyncio.run(HandlerTimesFile(".pumphouse/handler-times.json").write(times))


def test_when_no_pump_has_run_then_the_doctor_says_how_to_have_leases_compared(
    pump: Pump, write: Write
) -> None:
    write("shop.py", an_app())

    [finding] = [each for each in findings(pump, "shop:app")["ok"] if "times" in each["subject"]]

    assert finding["detail"] == "none on record in .pumphouse/handler-times.json yet"
    assert finding["remedy"].startswith("run the app for a while")


def test_when_a_pump_has_run_then_its_leases_are_compared_with_its_handlers_times(
    pump: Pump, write: Write
) -> None:
    write("shop.py", an_app(f"{DEAD}, renew=False, lease=timedelta(seconds=40), prefetch=0"))
    on_record(max_s=50.0, greetings=7)

    result = findings(pump, "shop:app")

    [warning] = result["warning"]
    assert warning["subject"] == "subscription greetings"
    assert "handlers take 50.0s (p99; 50.0s at most)" in warning["detail"]
    assert any("of 1 subscription(s)" in each["detail"] for each in result["ok"])


def test_when_an_app_has_run_then_the_doctor_knows_how_long_its_handlers_took(
    pump: Pump, greetings: Path
) -> None:
    assert pump("send", "greetings", '{"name": "Ada"}', "--app", "greeting:app").exit_code == 0
    assert pump("run", "greeting:app", "--until-empty").exit_code == 0

    [finding] = [
        each
        for each in findings(pump, "greeting:app")["ok"]
        if each["detail"].startswith("handlers took")
    ]

    assert finding["detail"].endswith("of 1; the lease is 30.0s, renewed"), finding


def test_when_the_spill_would_go_with_its_container_then_doctor_says_so(
    pump: Pump, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T1."""
    mounts = tmp_path / "mounts"
    mounts.write_text("1 0 0:9 / / rw - overlay overlay rw")
    monkeypatch.setattr(spill, "_MOUNTS", mounts)
    write("shop.py", an_app())

    [found] = [each for each in findings(pump, "shop:app")["warning"] if each["subject"] == "spill"]

    assert "lies on overlay" in found["detail"]
    assert "kept in their queue" in found["detail"]
    assert "App(spill=…)" in found["remedy"]
