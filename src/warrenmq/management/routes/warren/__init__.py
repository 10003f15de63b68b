"""Endpoints of warren's own, which RabbitMQ has not; all begin with `/api/warren`."""
