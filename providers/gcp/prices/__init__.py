"""Sources of GCP prices and capacity history."""
