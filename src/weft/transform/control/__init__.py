"""Control flow on tensors: `scan`, `while_loop`, `cond`, `map`."""
