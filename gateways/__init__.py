"""Gateways: one package a broker, each implementing `pump.ports`; none imports another."""
