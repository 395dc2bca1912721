"""The process around a training program: what it starts with, and what watches it and its log."""
