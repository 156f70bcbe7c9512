"""The protocols of leases as steps: pure, and left at any request without harm."""
