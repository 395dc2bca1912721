"""The commands, one module per group. Each command calls orchestrator.Client."""
