"""Health and control: pausing, probes, and the small server that answers for them."""
