"""What happens in a history, by subject: a file acts on the node and tells the models what it saw. Start with `clients.py`."""
