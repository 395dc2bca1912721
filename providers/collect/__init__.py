"""Collecting prices: sources that poll, a child process that runs them, and a parent that judges and schedules.

Adapters in providers/{aws,gcp,azure,feed} are found by name, and know only the seam.
"""
