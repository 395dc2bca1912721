"""The databases behind a store: what SQLite and Postgres do differently, and what their errors mean."""
