"""The dashboard: pages of an installation, each also as JSON and CSV (its twins), served on loopback.

It uses the same services as the command line, and does not depend on SQL, clouds or the engine.
"""
