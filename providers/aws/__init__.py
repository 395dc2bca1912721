"""AWS. The only package that imports boto3, and only when one of its objects is created."""
