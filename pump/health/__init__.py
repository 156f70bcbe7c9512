"""Health: what a running app says about itself, and how it is paused, scaled and drained.

`HealthOptions` says where; `app.run(health=…)` or `pump run --health … --control …` serves it.
"""

from .options import HealthOptions

__all__ = ["HealthOptions"]
