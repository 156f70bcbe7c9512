"""SQS servers under load: who they are, a client that costs less than they do, and the loads."""
