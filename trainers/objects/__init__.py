"""Object stores: named bytes in a folder of this machine or in a bucket, with the same operations and errors."""
