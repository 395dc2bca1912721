"""The offline catalogue: what it holds, whether it makes sense, and updating it without a release."""
