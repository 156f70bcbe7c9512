"""The pump: receive, dispatch, settle. `Pump` in `pump.loop.pump` puts the parts together.

Follow one message: `receiving.py` asks for it, `lanes.py` says when it may start, `workers.py`
runs it, `processing.py` turns it into an outcome, `settler.py` tells the broker and `reporting.py`
log and observers, while `leases.py` keeps its lease.
"""

from .pump import Pump
from .reporting import PumpStats

__all__ = ["Pump", "PumpStats"]
