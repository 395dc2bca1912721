"""The databases behind a store: the differences between SQLite and Postgres, and the meaning of their errors."""
