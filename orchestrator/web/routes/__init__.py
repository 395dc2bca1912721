"""The pages: their addresses, their JSON and CSV twins, and the figures that they request from the client."""
