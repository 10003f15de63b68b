"""The OpenAPI document of the HTTP API: parameters, bodies, replies by status, and the login."""
