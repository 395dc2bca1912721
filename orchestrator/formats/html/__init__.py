"""HTML by hand: escaped markup, charts as SVG, and the style that pages share."""
