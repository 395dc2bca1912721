"""The engine: carries decisions out, one persisted step at a time, and survives its own death at each of them."""
