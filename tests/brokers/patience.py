"""Patience: how many times as long leases and delays last in the contract on real servers.

One is enough on a machine that has time. `make test-brokers` runs what failed in the crowd again
with more, so that what decides is the gateway, not who had the processor for a second or two.
"""

from __future__ import annotations

import os

PATIENCE = float(os.environ.get("PATIENCE", "1"))
