"""Secrets: passed from a submitter's environment to the control plane, which alone keeps them."""
