"""What the AWS gateways share, held to its word over every transport."""
