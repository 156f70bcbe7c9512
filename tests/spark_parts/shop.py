"""An app that can be imported."""

from __future__ import annotations

from pump import App

app = App("sqs://eu-west-1")
