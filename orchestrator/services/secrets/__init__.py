"""Secrets: from a submitter's environment to the control plane, which alone holds them."""
