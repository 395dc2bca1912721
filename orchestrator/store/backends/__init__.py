"""The databases behind a store: what differs between SQLite and Postgres, and what their errors mean."""
