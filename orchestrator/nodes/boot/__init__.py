"""Boot: prepares a machine that shares nothing with the control plane to run its jobs."""
