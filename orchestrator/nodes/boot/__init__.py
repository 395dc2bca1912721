"""Boot: what makes a machine that shares nothing with the control plane one of its own."""
