"""The sample does what it promises, on a server of its own."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

ROOT = Path(__file__).resolve().parents[3]
SAMPLE = ROOT / "samples" / "lambda_on_local"
PATIENCE_S = 30


def expected_lines() -> list[str]:
    docstring = ast.get_docstring(ast.parse((SAMPLE / "functions.py").read_text())) or ""
    _, _, expectation = docstring.partition("Expect:")
    lines = [line.strip() for line in expectation.strip().splitlines()]
    return [line for line in lines if not line.startswith("(")]


def starting_with(output: IO[str], words: str) -> str:
    """Read on to a line that begins so, and return the rest of it; pytest's timeout bounds it."""
    return next(line for line in output if line.startswith(words)).removeprefix(words).strip()


@pytest.mark.timeout(90)
def test_a_function_is_fed_from_a_queue_that_boto3_sends_to(tmp_path: Path) -> None:
    """R46: from an SDK's send to a Lambda handler's call, and again after a reported failure."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    options = ["--memory", "--port", "0", "--config", str(SAMPLE / "local.yaml")]
    server = subprocess.Popen(
        [sys.executable, "-m", "pump", "local", *options],
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        endpoint = starting_with(server.stdout, "listening on ")
        shop = [sys.executable, "-m", "samples.lambda_on_local.shop", endpoint]
        subprocess.run(shop, cwd=tmp_path, env=env, timeout=PATIENCE_S, check=True)

        printed = [f"order {starting_with(server.stdout, 'order ')}" for _ in expected_lines()]

        assert sorted(printed[:3]) == sorted(expected_lines()[:3])
        assert printed[3] == expected_lines()[3]
        server.terminate()
        assert server.wait(PATIENCE_S) == 0
    finally:
        server.kill()
        server.wait()
        if server.stdout is not None:
            server.stdout.close()


def test_the_sample_is_short() -> None:
    for file in ("functions.py", "shop.py"):
        assert len((SAMPLE / file).read_text().splitlines()) <= 60
