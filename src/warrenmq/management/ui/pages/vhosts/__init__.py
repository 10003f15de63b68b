"""Vhosts: the list, and one with its figures, permissions and limits."""
