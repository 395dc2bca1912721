"""Azure. The only package that imports azure.*, and only where an account is used."""
