"""Users: the list, one with its permissions, and the question what a user may do."""
