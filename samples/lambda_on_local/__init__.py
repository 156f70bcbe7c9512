"""A Lambda function fed from a queue of `pump local`, without an account."""
