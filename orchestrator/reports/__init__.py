"""Reports: what jobs cost, saved and would have cost otherwise; as values, CSV and a page."""
