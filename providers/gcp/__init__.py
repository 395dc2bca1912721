"""GCP. The only package that imports google.*, and only when a source is made."""
