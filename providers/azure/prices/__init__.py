"""Sources of Azure prices and risk figures."""
