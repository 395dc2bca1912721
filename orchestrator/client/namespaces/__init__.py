"""The namespaces of a Client: one class for each kind of thing that a user works with."""
