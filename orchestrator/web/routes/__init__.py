"""The pages: each with its address, its twins in JSON and CSV, and the figures that it asks the client for."""
