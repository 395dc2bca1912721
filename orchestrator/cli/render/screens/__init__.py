"""What each view looks like: functions that turn a view into text, one module per topic."""
