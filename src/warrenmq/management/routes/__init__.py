"""The endpoints of the HTTP API: each file has those of one subject, in a router `router`."""
