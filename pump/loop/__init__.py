"""The pump: receive, dispatch, settle. `Pump` in `pump.loop.pump` puts the parts together.

Follow one message: `pump.py` polls it, `lanes.py` says when it may start, `dispatch.py` turns
it into an outcome, `settler.py` tells the broker, while `keeper.py` keeps its lease.
"""

from .pump import Pump
from .reporting import PumpStats

__all__ = ["Pump", "PumpStats"]
