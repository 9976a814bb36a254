"""The CPU as a target: loop nests, products, routines, and what runs them."""
