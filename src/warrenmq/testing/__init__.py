"""The simulator: a whole node on a simulated disk and clock, crashed and damaged in every way a seed can name.

A seed gives a history: what clients do, when the disk's work gets on, which calls fail, where the power goes. The oracle
knows what a broker may and may not have lost. The same seed always gives the same history, so a failure can be looked
at for as long as it takes; it is shrunk first. Nothing here runs in a broker. Start with `simulation.py`.
"""
