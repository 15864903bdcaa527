"""Past defects, as patches that put each of them back: proof that the simulator finds them.

The first lines of a patch name the fix that it undoes, the resulting error, and the way to find it.
"""
