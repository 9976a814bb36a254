"""Values that equations define: roots, fixed points, minima, solutions of ODEs."""
