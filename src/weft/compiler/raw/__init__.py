"""What the compiler does with raw arrays, for each library that they are of."""
