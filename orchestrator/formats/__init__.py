"""Formats: values as JSON, CSV cells and HTML."""
