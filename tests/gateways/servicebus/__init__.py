"""The Azure Service Bus gateway."""
