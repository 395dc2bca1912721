"""HTML without a template engine: escaped markup, SVG charts and the shared style sheet."""
