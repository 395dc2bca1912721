"""The engine: carries out decisions, one stored step at a time, and can crash at any of them without harm."""
