"""Samples: one idea each, on the embedded gateway, run by the tests."""
