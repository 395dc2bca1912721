"""The store for people: checked, backed up, its books corrected."""
