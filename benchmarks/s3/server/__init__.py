"""A stand-in for S3: one process, in memory, with as much of S3 as queues on it need.

It spends far less on a request than any SDK, adds a latency when told to, and counts requests;
nothing is concluded from it but what clients cost, and how often they ask. How faithful Pumphouse
is to S3 is tested on LocalStack and moto.
"""
