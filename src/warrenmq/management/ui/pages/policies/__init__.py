"""Policies: the lists, the form of one, and the objects that it will touch."""
