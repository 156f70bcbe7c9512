"""Redrive: dead letters, chosen by SQL, back to a queue. Never one lost; repeated where a broker
leaves no other choice, and then at most a batch.

The order is the whole of it: the message is sent, then recorded durably, then removed from the
dead-letter queue. Nothing here needs a JVM; `pump.spark.redrive` runs the same in Spark tasks.
"""
