"""Sources of AWS prices and risk figures."""
