"""What the AWS gateways share: settings, transports, errors. No gateway lives here."""
