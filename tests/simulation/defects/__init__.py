"""Past defects, as patches that put each of them back: proof that the simulator finds them.

A patch begins with lines that say which fix it undoes, what is wrong then, and how to look for it.
"""
