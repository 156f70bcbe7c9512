"""The SQS gateway against a real server: rejection, faults, kills, and strangers' messages."""
