"""This host's control plane: starts, finds and stops it; settings, log and unmanaged machines."""
