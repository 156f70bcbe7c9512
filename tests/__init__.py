"""The tests, named by path: `tests.<folder>.<module>`."""
