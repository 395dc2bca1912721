"""The engine: carries decisions out, one persisted step at a time, and survives its own death at each of them.

Must not know: the command line, views, how a decision is made.
"""
