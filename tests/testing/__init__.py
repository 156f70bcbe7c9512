"""The test kit, tested."""
