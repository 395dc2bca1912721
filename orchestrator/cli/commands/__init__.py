"""The commands, a module per group. Each is one call of orchestrator.Client."""
