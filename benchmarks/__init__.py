"""Benchmarks: Pumphouse beside other libraries, in one run, as ratios. See README.md."""
