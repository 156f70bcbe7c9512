"""Tests of handlers, their middleware and the inbox."""
