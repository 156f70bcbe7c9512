"""Every sample runs, and prints what its first lines promise."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.brokers.aws_account import AwsAccount
from tests.together import together

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = sorted(path.stem for path in (ROOT / "samples").glob("[!_]*.py"))
MAX_LINES = 60
PATIENCE_S = 60


def expected_lines(sample: str) -> list[str]:
    """What the docstring says it prints, without remarks in parentheses."""
    source = (ROOT / "samples" / f"{sample}.py").read_text()
    docstring = ast.get_docstring(ast.parse(source)) or ""
    _, _, expectation = docstring.partition("Expect:")
    lines = textwrap.dedent(f"          {expectation.strip()}").splitlines()
    return [line.strip() for line in lines if not line.strip().startswith("(")]


def run(*command: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.timeout(90)
@pytest.mark.parametrize(
    "sample", ["orders", "payments", "middleware", "bridge", "refunds_by_hand"]
)
def test_a_sample_prints_what_it_promises(sample: str, tmp_path: Path) -> None:
    result = run("-m", f"samples.{sample}", cwd=tmp_path)

    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == sorted(expected_lines(sample))


@pytest.mark.timeout(150)
def test_greetings_greets_whoever_another_process_names(tmp_path: Path) -> None:
    """R44: a second process sends to the queue that the first one hosts."""
    app = subprocess.Popen(
        [sys.executable, "-m", "samples.greetings"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        gateway = "local://.pumphouse/greetings"
        send = ("-m", "pump", "send", "greetings", '{"name": "Ada"}', "--gateway", gateway)
        # The queue is there once the app has started; sending says so until then.
        assert any(run(*send, cwd=tmp_path).returncode == 0 for _ in range(20))
        assert app.stdout is not None
        assert app.stdout.readline() == "Hello, Ada!\n"

        app.send_signal(signal.SIGTERM)
        assert app.wait(PATIENCE_S) == 0
    finally:
        app.kill()
        app.wait()
        if app.stdout is not None:
            app.stdout.close()


def take_orders(cwd: Path, gateway: str = "", **variables: str) -> list[str]:
    """Place orders as the shop, take them as the service, and return what the service prints."""
    shop = ("-m", "samples.orders_on_sqs", *filter(None, [gateway]))
    service = ("-m", "pump", "run", "samples.orders_on_sqs:app", "--until-empty")
    placed = run(*shop, cwd=cwd, **variables)
    assert placed.returncode == 0, placed.stderr
    taken = run(*service, cwd=cwd, PUMP_GATEWAY=gateway, **variables)
    assert taken.returncode == 0, taken.stderr
    return taken.stdout.splitlines()


@pytest.mark.timeout(150)
def test_orders_on_sqs_runs_without_an_account(tmp_path: Path) -> None:
    """R55: the gateway is chosen by configuration, and the embedded one is the default."""
    printed = take_orders(tmp_path)

    assert sorted(printed) == sorted(expected_lines("orders_on_sqs"))
    assert printed.index("ada: order 1 placed") < printed.index("ada: order 2 placed")


@pytest.mark.broker
@pytest.mark.parametrize("transport", ["boto3", "aioboto3"])
def test_orders_on_sqs_runs_on_sqs(transport: str, aws: AwsAccount, tmp_path: Path) -> None:
    """R34, R55: the same program on FIFO queues, by nothing but another URL."""
    endpoint = f"endpoint={aws.endpoint_url}&transport={transport}"

    printed = take_orders(tmp_path, f"sqs://{aws.region}?{endpoint}", **keys_of(aws))

    assert sorted(printed) == sorted(expected_lines("orders_on_sqs"))
    assert printed.index("ada: order 1 placed") < printed.index("ada: order 2 placed")
    assert depth(aws, "orders.fifo") == 0
    assert depth(aws, "orders-invalid.fifo") == 1


def keys_of(aws: AwsAccount) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": aws.access_key_id,
        "AWS_SECRET_ACCESS_KEY": aws.secret_access_key,
    }


def depth(aws: AwsAccount, queue: str) -> int:
    sqs = aws.client("sqs")
    name = "ApproximateNumberOfMessages"
    url = sqs.get_queue_url(QueueName=queue)["QueueUrl"]
    return int(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[name])["Attributes"][name])


@pytest.mark.timeout(90)
def test_the_demo_shows_every_fate_of_a_message(tmp_path: Path) -> None:
    """R24: handled, retried, and rejected to both queues, with a table at the end."""
    result = run("-m", "samples.demo", cwd=tmp_path)

    assert result.returncode == 0, result.stderr
    shown = result.stdout
    assert all(word in shown for word in ("processed", "retrying", "dead-lettered"))
    assert all(queue in shown for queue in ("→ orders-dead", "→ orders-invalid"))
    assert "what became of them" in shown


def test_a_sample_is_one_short_idea() -> None:
    """One idea, its command and what to expect, in 60 lines and their docstring."""
    with together() as each:
        for sample in SAMPLES:
            if sample != "demo":
                with each(sample):
                    _is_one_short_idea(sample)


def _is_one_short_idea(sample: str) -> None:
    source = (ROOT / "samples" / f"{sample}.py").read_text()
    docstring = ast.get_docstring(ast.parse(source)) or ""

    code = len(source.splitlines()) - len(docstring.splitlines())
    assert code <= MAX_LINES
    assert "Run it:" in docstring
    assert expected_lines(sample)
    assert sample not in ("handlers", "gateways", "pump")
