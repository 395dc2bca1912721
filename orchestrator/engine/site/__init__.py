"""Site: this host's site: a Ray cluster whose head and nodes outlive the control plane. Only this package uses Ray."""
