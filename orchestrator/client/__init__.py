"""The SDK: one `Client`, with a namespace for each kind of thing that a user works with."""

from orchestrator.client.client import Client

__all__ = ["Client"]
