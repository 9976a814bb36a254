"""What Python values a trace has read, and noticing before each call whether they are the same.

`frames` sees which functions run while a function is traced, `bytecode` says what their code can
name, `walk` goes over everything that can be reached by those names, and `watch` compares.
"""
