"""The bill of materials says what was locked, and not from which index: `make sbom` ends with this.

The address of the index that was asked may be internal, and says nothing of a file; its hash does.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

Component = dict[str, Any]


def without_index(bill: dict[str, Any]) -> dict[str, Any]:
    """The same CycloneDX bill without the addresses from which packages were read; the hashes that
    stood beside these stay with their component.
    """
    return {**bill, "components": [_without_index(each) for each in bill.get("components", [])]}


def _without_index(component: Component) -> Component:
    references = component.get("externalReferences", [])
    kept = [each for each in references if each.get("type") != "distribution"]
    hashes = [
        value
        for each in references
        if each.get("type") == "distribution"
        for value in each.get("hashes", [])
    ]
    changed = {**component, "hashes": component.get("hashes", []) + hashes}
    changed["externalReferences"] = kept
    return {key: value for key, value in changed.items() if value or key not in _MAY_BE_EMPTY}


_MAY_BE_EMPTY = ("hashes", "externalReferences")


def main() -> None:
    """Rewrite the file that is named."""
    path = Path(sys.argv[1])
    bill = without_index(json.loads(path.read_text(encoding="utf-8")))
    path.write_text(json.dumps(bill, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
