"""Offers: listing, filtering and ranking them for a job."""
