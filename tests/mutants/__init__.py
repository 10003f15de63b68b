"""Mutants: facts about storage that are broken on purpose, to see whether their tests fail.
`table.py` has the mutants, `python -m tests.mutants` runs them, and `test_table.py` checks that the
table fits the sources.
"""
