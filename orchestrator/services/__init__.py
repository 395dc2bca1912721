"""Services: the use cases, one module each. Callers use them through `orchestrator.Client`."""
