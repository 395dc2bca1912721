"""Reports: what jobs cost, what they saved and what they would have cost without Tradewind, as views, CSV and HTML."""
