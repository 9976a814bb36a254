"""Reachable state: the Python values that a trace could read, compared before each call.

`frames` records which functions run during a trace, `bytecode` finds the names in their code,
`walk` visits everything that those names can reach, and `watch` compares.
"""
