"""Reports: what jobs cost, what they saved and what they would have cost otherwise, as views, CSV and HTML."""
