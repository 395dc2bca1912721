"""Offers: lists and filters them, and ranks them for a job."""
