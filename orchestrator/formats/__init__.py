"""Formats: values as JSON, CSV cells and documents. Must not know: any view."""
