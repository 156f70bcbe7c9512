"""Queues on S3: a server of the benchmark's own, the naive design, and both of our layouts."""
