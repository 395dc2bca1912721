"""This host's control plane: started, found, ended; its settings, log and unmanaged machines."""
