"""AWS. The only package that imports boto3, and only when a source is made."""
