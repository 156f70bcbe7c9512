"""Replay a seed: `python -m tests.gateways.s3.simulation SEED [--layout …] [--plant …]`."""

from __future__ import annotations

import argparse
import sys

from .cases import CASES
from .plants import PLANTS, Plant
from .running import run


def main() -> int:
    """Print all that happened in a run; with `--count`, in the first of many that breaks."""
    parser = argparse.ArgumentParser(prog="python -m tests.gateways.s3.simulation")
    parser.add_argument("seed", type=int)
    parser.add_argument("--layout", choices=sorted(CASES), default="reference")
    parser.add_argument("--plant", choices=sorted(PLANTS), default=Plant.name)
    parser.add_argument("--count", type=int, default=1, help="try so many seeds from this one on")
    asked = parser.parse_args()
    for seed in range(asked.seed, asked.seed + asked.count):
        outcome = run(seed, CASES[asked.layout], asked.plant)
        if outcome.broken or asked.count == 1:
            sys.stdout.write(f"{outcome.describe(max_lines=None)}\n")
        if outcome.broken:
            return 1
    sys.stdout.write(f"{asked.count} runs, all promises kept\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
