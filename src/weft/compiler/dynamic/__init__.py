"""One program for many lengths: `wf.compile(f, dynamic=…)`.

A call of length n is traced at n, so what it does is known exactly, and the same function is traced
once at the length B of its bucket. `lift` writes the program of B so that it computes what the one
of n does: positions behind n are padding, and wherever an operation would take padding in, it is
masked by what changes nothing (zeros in a sum). What differs between the lengths besides shapes
(the count that a mean divides by, a table that was made for n positions) becomes an input. Calls
whose lifted programs are the same share native code.
"""
