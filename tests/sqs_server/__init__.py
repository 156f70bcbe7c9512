"""The SQS server."""
