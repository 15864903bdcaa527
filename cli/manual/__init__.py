"""What `mq manual` writes: man pages, completions and the description of the JSON.

All of it derives from the declarations of the commands (`described`), so that it says what the
command does. It is committed, and a test fails when it is stale: `make manual` writes it anew.
"""
