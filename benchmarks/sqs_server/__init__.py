"""A stand-in for SQS, made for measuring clients: fast, in memory, standard queues only.

python -m benchmarks.sqs_server

It listens on a free loopback port, prints its address as one line, and ends when its standard
input does. It speaks the JSON protocol over HTTP/1.1, checks no signature, counts calls by
operation, and can add latency to each call without keeping others from theirs. How faithful
Pumphouse is to SQS is tested elsewhere, on LocalStack; nothing but a benchmark should rely on
this.

Beside SQS it answers, for the one who measures:

    POST /hold          show no message until /release
    GET  /polled        answers as soon as a receive waits for messages
    POST /release?ms=N  add N ms to each call, count from zero, show the messages
    GET  /drained       answers as soon as the last message is deleted, with the counts
    GET  /counts        calls by operation, and processor time, since the last /release
    POST /flush         let no receive wait any more
"""
