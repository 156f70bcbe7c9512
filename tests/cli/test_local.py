"""`pump local`: what it says, how it ends, and who may connect."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from pump.cli.console import stdout
from pump.cli.local import credentials_for, is_loopback, overview
from pump.errors import ConfigurationError
from pump.ports import QueueStats
from pump.serving import MappingStats
from tests.kill.sqs_server_process import ServerProcess


def pump_local(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it where it is expected to end by itself."""
    return subprocess.run(
        [sys.executable, "-m", "pump", "local", "--port", "0", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_when_it_is_asked_for_a_queue_then_any_client_finds_it(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, "--queue", "orders", "--queue", "line.fifo") as server:
        urls = server.client().list_queues()["QueueUrls"]

    base = f"{server.endpoint_url}/000000000000"
    assert sorted(urls) == [f"{base}/line.fifo", f"{base}/orders"]


def test_when_a_function_prints_at_its_import_then_the_first_line_still_says_where(
    tmp_path: Path,
) -> None:
    """R46: and with `--json` it is the only one, for scripts."""
    (tmp_path / "noisy.py").write_text(
        "print('importing')\n\ndef handle(event, context):\n    return None\n"
    )
    (tmp_path / "local.toml").write_text(
        '[queues.orders]\n\n[[mappings]]\nqueue = "orders"\nfunction = "noisy:handle"\n'
    )
    arguments = ["--port", "0", "--memory", "--config", "local.toml", "--json"]
    with subprocess.Popen(
        [sys.executable, "-m", "pump", "local", *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        assert server.stdout is not None
        told = json.loads(server.stdout.readline())
        server.terminate()

        assert told["endpoint"].startswith("http://127.0.0.1:")
        assert told["data"] is None
        assert told["pid"] == server.pid
        assert server.stdout.read() == ""


def test_when_it_is_terminated_then_it_ends_with_zero(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        assert server.terminate() == 0


def test_when_a_queue_has_an_impossible_name_then_it_says_so(tmp_path: Path) -> None:
    ended = pump_local("--data", str(tmp_path), "--queue", "no spaces")

    assert ended.returncode == 3
    assert "no spaces" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_when_the_port_is_taken_then_it_says_so(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "one") as server:
        ended = pump_local("--data", str(tmp_path / "two"), "--port", str(server.port))

    assert ended.returncode in {3, 4}
    assert str(server.port) in ended.stderr
    assert "Traceback" not in ended.stderr


def test_when_the_config_is_wrong_then_file_key_and_remedy_are_named(tmp_path: Path) -> None:
    """R46."""
    config = tmp_path / "local.toml"
    config.write_text('[[mappings]]\nqueue = "orders"\nfunction = "m:f"\nbatch_size = 0\n')

    ended = pump_local("--memory", "--config", str(config))

    assert ended.returncode == 3
    assert "local.toml" in ended.stderr
    assert "mappings[0].batch_size" in ended.stderr


def test_when_the_host_is_not_this_machine_alone_then_credentials_are_demanded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)

    ended = pump_local("--memory", "--host", "0.0.0.0")

    assert ended.returncode == 3
    assert "AWS_ACCESS_KEY_ID" in ended.stderr


def test_when_it_verifies_then_a_wrong_secret_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another secret")

    with ServerProcess(tmp_path, "--verify") as server:
        client = server.client()
        with pytest.raises(client.exceptions.ClientError) as refused:
            client.list_queues()

    assert refused.value.response["Error"]["Code"] in {
        "SignatureDoesNotMatch",
        "InvalidSignatureException",
    }


@pytest.mark.parametrize(
    ("host", "is_so"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("me", False)],
)
def test_which_hosts_are_this_machine_alone(host: str, is_so: bool) -> None:
    assert is_loopback(host) is is_so


def test_when_verifying_without_credentials_then_the_variables_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)

    with pytest.raises(ConfigurationError, match="AWS_SECRET_ACCESS_KEY"):
        credentials_for("127.0.0.1", is_asked_for=True)


def test_when_this_machine_alone_can_ask_then_no_credentials_are_demanded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "mine")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")

    assert credentials_for("127.0.0.1", is_asked_for=False) == {}
    assert credentials_for("0.0.0.0", is_asked_for=False) == {"mine": "secret"}


def test_the_table_shows_queues_and_mappings() -> None:
    console = stdout()
    queues = [QueueStats(name="orders", visible=1200, in_flight=3, delayed=0, oldest_age_s=61.0)]
    mappings = [
        MappingStats(
            queue="orders",
            function="shop:on_orders",
            invocations=7,
            succeeded=60,
            failed=2,
            filtered=1,
        )
    ]

    with console.capture() as captured:
        console.print(overview(queues, mappings, max_rows=20))

    text = captured.get()
    assert "1,200" in text
    assert "shop:on_orders" in text


def test_when_there_are_more_queues_than_rows_then_the_fullest_are_shown() -> None:
    console = stdout()
    queues = [QueueStats(name=f"q{n:04}", visible=n, in_flight=0) for n in range(1000)]

    with console.capture() as captured:
        console.print(overview(queues, [], max_rows=10))

    text = captured.get()
    assert "q0999" in text
    assert "q0989" not in text
    assert "… and 990 more" in text


def test_when_it_is_told_to_stop_while_it_starts_then_it_stops(tmp_path: Path) -> None:
    """A module that hangs while it is imported, or a large file, must not keep it."""
    (tmp_path / "hanging.py").write_text("import threading\nthreading.Event().wait(60)\n")
    (tmp_path / "local.toml").write_text(
        '[queues.orders]\n[[mappings]]\nqueue = "orders"\nfunction = "hanging:handler"\n'
    )
    command = [sys.executable, "-m", "pump", "local", "--port", "0", "--memory"]
    with subprocess.Popen(
        [*command, "--config", "local.toml"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as process:
        # It hangs in the import, so there is no line to wait for: ask until it has ended.
        while process.poll() is None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.5)
        assert process.stdout is not None
        assert process.stdout.read() == ""

    assert process.returncode in {0, 130, -signal.SIGTERM}


@pytest.mark.parametrize("signals", [1, 2])
def test_when_a_function_hangs_then_signals_end_the_server_all_the_same(
    signals: int, tmp_path: Path
) -> None:
    """R46: one waits for the function's timeout, two do not."""
    (tmp_path / "hanging.py").write_text(
        "import threading\nfrom pathlib import Path\n"
        "def handler(event, context):\n"
        "    Path('started').touch()\n    threading.Event().wait(60)\n"
    )
    (tmp_path / "local.toml").write_text(
        "[queues.orders]\n[[mappings]]\n"
        'queue = "orders"\nfunction = "hanging:handler"\ntimeout = "1s"\n'
    )
    with ServerProcess(
        tmp_path / "data", "--config", str(tmp_path / "local.toml"), folder=tmp_path
    ) as server:
        client = server.client()
        url = client.get_queue_url(QueueName="orders")["QueueUrl"]
        client.send_message(QueueUrl=url, MessageBody="hello")
        while not (tmp_path / "started").exists():
            threading.Event().wait(0.02)
        process = server.process
        assert process is not None
        for _ in range(signals - 1):
            process.terminate()
            threading.Event().wait(0.2)

        code = server.terminate()

    assert code == (0 if signals == 1 else 130)


def test_when_a_function_leaves_a_thread_behind_then_the_server_ends_all_the_same(
    tmp_path: Path,
) -> None:
    (tmp_path / "leaving.py").write_text(
        "import threading\n"
        "threading.Thread(target=threading.Event().wait).start()\n"
        "def handler(event, context): ...\n"
    )
    (tmp_path / "local.toml").write_text(
        '[queues.orders]\n[[mappings]]\nqueue = "orders"\nfunction = "leaving:handler"\n'
    )
    with ServerProcess(
        tmp_path / "data", "--config", str(tmp_path / "local.toml"), folder=tmp_path
    ) as server:
        assert server.terminate() == 0
