"""Bench: what one app's messages take on one gateway, measured, priced and judged.

`scratch` keeps a run away from every real queue, `meter` listens to the pump, `measuring` runs.
Everything else is pure: `percentiles`, `pacing`, `pricing`, `suggestions`, `report`.
"""
