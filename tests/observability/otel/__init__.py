"""Traces and metrics, and where they go."""
