"""This host's control plane: starting, finding and ending it; settings, log and unmanaged machines."""
