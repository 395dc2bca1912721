"""AWS. The only package that imports boto3, and only when something is made of it."""
