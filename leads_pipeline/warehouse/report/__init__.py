"""The page of figures that people open in a browser."""
