"""Services: the use cases, one module each; `orchestrator.Client` is the way in."""
