"""Benchmark of one GPU: `python -m benchmarks.gpu`."""
