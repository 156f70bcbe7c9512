"""Orders from SQS through the pump on Spark to a table and a report."""
