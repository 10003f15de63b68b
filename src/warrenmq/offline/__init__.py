"""What is done to a data directory without its node: check, report, salvage, backup, restore, and making new ones.

Nothing here writes into a directory that is looked at; what restore, salvage and `store_writer.py` make is new. The
command line prints what these return. May import: admin and everything below it. Start with `data_directory.py`.
"""
