"""Invokes the function as Lambda would, with event.json."""

import json
from pathlib import Path

from .function import lambda_handler

if __name__ == "__main__":
    event = json.loads((Path(__file__).parent / "event.json").read_text())
    print(json.dumps(lambda_handler(event, None)))
