"""The console: a web page for administrators, of any number of clusters."""
