"""The jobs that the engine gives to the disk, and their order; `disk/` carries them out.

May import: model. Start with `job.py`.
"""
