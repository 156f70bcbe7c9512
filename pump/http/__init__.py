"""HTTP: the small server behind probes, control and metrics, and what it takes for a request."""
