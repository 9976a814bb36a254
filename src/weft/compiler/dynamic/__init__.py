"""One program for many lengths: `wf.compile(f, dynamic=…)`.

A call of length n is traced at n, so its operations are known exactly, and the same function is
traced once at the length B of its bucket. `lift` rewrites the program of B so that it computes what
that of n does: positions from n on are padding, and where an operation would read padding, it is
masked with a neutral value (zeros in a sum). What differs between the lengths besides shapes (the
count that a mean divides by, a table of n positions) becomes an input. Calls whose lifted programs
are equal share native code.
"""
