"""The pump on Spark without Spark: its parts, and whole runs with tasks in this process."""
