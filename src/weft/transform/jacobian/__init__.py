"""Jacobians and Hessians: sparsity, colourings, cuts, the plan and the sweeps."""
