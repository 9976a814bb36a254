"""The CPU target: loop nests, products, routines, and the runtime."""
