"""The clouds of tests/clouds as places of histories: the control plane talks to them through the real providers and
their client libraries, and dies, sleeps and loses answers between any two requests."""
