"""Prices from files and URLs that anyone can provide: smaller clouds, reserved contracts."""
