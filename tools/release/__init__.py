"""Builds what a release consists of, installs each file in an empty environment, and drives it."""
