"""Side-by-side measurements; `make bench` runs them all, README.md says how to read them."""
