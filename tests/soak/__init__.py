"""Soak tests: long runs in processes of their own."""
