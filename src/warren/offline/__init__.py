"""What is done to a data directory without its node: check, report, salvage, backup, restore.

Nothing here writes into the directory that is looked at, except for a restore, whose target is new. The command line
prints what these return. May import: admin and everything below it. Start with `data_directory.py`.
"""
