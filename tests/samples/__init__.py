"""Samples do what they say."""
