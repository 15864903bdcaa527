"""The console: a web interface for administrators of any number of clusters."""
