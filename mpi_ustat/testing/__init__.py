"""Exact tests that samples are of one law, from sums over pairs of blocks."""
