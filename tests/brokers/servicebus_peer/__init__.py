"""An AMQP peer that the Azure Service Bus SDK can talk to. It is not Azure.

It runs as a process of its own, in an environment of its own (`.venv-servicebus-peer`), because
python-qpid-proton has to be compiled. By hand:

    .venv-servicebus-peer/bin/python -m tests.brokers.servicebus_peer
"""
