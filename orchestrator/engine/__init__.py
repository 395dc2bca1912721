"""The engine: carries out decisions, one stored step at a time. A crash at any step does no harm."""
