"""The sample for Lambda runs without an account, and its template fits it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import yaml

from samples.orders_on_lambda.function import app

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "samples" / "orders_on_lambda"


class _Tags(yaml.SafeLoader):
    """Reads CloudFormation's short functions as text."""


_Tags.add_constructor("!GetAtt", lambda _, node: str(node.value))


@pytest.mark.timeout(90)
def test_it_prints_what_it_promises(tmp_path: Path) -> None:
    """R46: an event as AWS documents it, handled by a function."""
    pytest.importorskip("boto3")
    docstring = ast.get_docstring(ast.parse((FOLDER / "function.py").read_text())) or ""
    promised = textwrap.dedent("          " + docstring.partition("Expect:")[2].strip())

    done = subprocess.run(
        [sys.executable, "-m", "samples.orders_on_lambda"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == promised.splitlines()
    assert done.stderr == ""
    assert len((FOLDER / "function.py").read_text().splitlines()) <= 60


def test_the_template_makes_the_queues_of_the_app_and_reports_failed_items() -> None:
    resources = yaml.load((FOLDER / "template.yaml").read_text(), _Tags)["Resources"]
    queues = [each for each in resources.values() if each["Type"] == "AWS::SQS::Queue"]
    function = resources["Function"]["Properties"]
    [orders] = app.subscriptions

    made = {each["Properties"]["QueueName"] for each in queues}
    assert made == {spec.name for spec in orders.queue_specs()}
    mapping = function["Events"]["Orders"]["Properties"]
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    visible_after_s = resources["Orders"]["Properties"]["VisibilityTimeout"]
    assert visible_after_s >= 6 * function["Timeout"]
