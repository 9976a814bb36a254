"""Reports on compiled functions: texts, pictures, times."""
