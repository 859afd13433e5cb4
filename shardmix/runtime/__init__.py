"""Torch and processes: datasets, workers, loaders. Knows the layers below: errors, format, order."""
