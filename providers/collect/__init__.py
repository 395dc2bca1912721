"""Price collection: sources that poll, a child process that runs them, and a parent that schedules and checks them.

The sources are in providers/{aws,gcp,azure,feed}; providers.collect.sources finds them by name.
"""
