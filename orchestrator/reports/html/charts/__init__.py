"""Charts drawn on the server: SVG marks that stretch with the page, and HTML labels of fixed size."""
