"""Prices from files and URLs that anyone can write: smaller clouds, reserved contracts."""
