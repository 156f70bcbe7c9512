"""The configuration file of `pump local`."""
