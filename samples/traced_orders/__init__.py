"""A trace across two queues."""
