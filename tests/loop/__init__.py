"""Tests of the pump: its pure parts by state machines, the whole on virtual time."""
