"""The dashboard: pages of an installation, and their twins in JSON and CSV, served on loopback.

It reads what the command line reads, through the same services, and knows nothing of SQL, clouds or the engine.
"""
