"""The sample of a trace prints the tree that its first lines promise."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "samples" / "traced_orders" / "__main__.py"
MAX_LINES = 60


@pytest.mark.timeout(90)
def test_it_prints_the_tree_it_promises(tmp_path: Path) -> None:
    """R59: post → receive → handler → post → receive → handler is one trace."""
    source = PROGRAM.read_text()
    docstring = ast.get_docstring(ast.parse(source)) or ""
    expectation = docstring.partition("Expect:")[2].partition("\n\n")[0].strip()
    promised = textwrap.dedent(f"          {expectation}").splitlines()

    done = subprocess.run(
        [sys.executable, "-m", "samples.traced_orders"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == promised
    assert done.stderr == ""
    assert len(source.splitlines()) - len(docstring.splitlines()) <= MAX_LINES
