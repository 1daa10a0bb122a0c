"""The fault matrix: `make chaos` injects every fault of matrix.py at its real place and prints how often it did."""
