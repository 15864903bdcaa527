"""The output of `mq manual`: man pages, completions and the description of the JSON.

It is generated from the declarations of the commands (`described`) and committed. A test fails if
it is stale: `make manual` rewrites it.
"""
