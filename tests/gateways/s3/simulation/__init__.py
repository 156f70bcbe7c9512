"""A deterministic simulation of queues in a faulty store; run as a program, it replays a seed."""
