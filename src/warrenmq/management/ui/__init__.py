"""The web pages: they show and change what the HTTP API does, and use nothing else."""
