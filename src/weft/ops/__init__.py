"""THE TABLE: what each operation computes, what shape it has, and its derivative, by family."""
