"""Integers only: which record comes where. Knows nothing of files, torch or processes."""
