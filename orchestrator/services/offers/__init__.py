"""Offers: what can be rented and for how much, filtered, and in the light of a job."""
