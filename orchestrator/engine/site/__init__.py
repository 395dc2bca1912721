"""This host's site: a Ray cluster whose head and nodes outlive the control plane. The only part that knows Ray."""
