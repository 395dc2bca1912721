"""Nodes: the agent of each rented machine, and the objects through which it and the control plane communicate."""
