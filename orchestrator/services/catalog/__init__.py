"""The offline catalogue: showing, verifying and updating it without a release."""
