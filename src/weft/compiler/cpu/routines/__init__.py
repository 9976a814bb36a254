"""Routines: native code for rows that are not loop nests of elementwise steps."""
