"""Charts drawn on the server: SVG whose marks stretch with the page, and labels in HTML that keep their size."""
