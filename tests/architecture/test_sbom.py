"""What `make sbom` writes names no index."""

from __future__ import annotations

from .sbom import without_index

SHA = {"alg": "SHA-256", "content": "0" * 64}


def test_when_a_bill_is_written_then_no_address_of_an_index_is_in_it() -> None:
    bill = {
        "bomFormat": "CycloneDX",
        "components": [
            {
                "name": "attrs",
                "version": "25.1.0",
                "externalReferences": [
                    {
                        "type": "distribution",
                        "comment": "implicit dist url",
                        "url": "https://index.internal/simple/attrs/",
                        "hashes": [SHA],
                    },
                    {"type": "website", "url": "https://www.attrs.org"},
                ],
            },
            {
                "name": "structlog",
                "externalReferences": [
                    {"type": "distribution", "url": "https://index.internal/simple/structlog/"}
                ],
            },
        ],
    }

    written = without_index(bill)

    assert written == {
        "bomFormat": "CycloneDX",
        "components": [
            {
                "name": "attrs",
                "version": "25.1.0",
                "hashes": [SHA],
                "externalReferences": [{"type": "website", "url": "https://www.attrs.org"}],
            },
            {"name": "structlog"},
        ],
    }
