"""Azure. The only package that imports azure.*, and only when an account is used."""
