"""GradBench's twelve problems, written with Weft."""
