"""Observability: names, log and counters. Nothing here costs anything until it is read."""
