"""Run the operations of a history on the node, and update the models. Start with `clients.py`."""
