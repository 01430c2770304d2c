"""Launchers in virtual time: the simulated cluster, and replayed tables."""
