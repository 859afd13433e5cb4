"""Bytes on disk ↔ records ↔ columns. Knows nothing of torch, order or processes."""
