"""Conformance: docs/conformance.md is written by this package and held to it by a test."""
