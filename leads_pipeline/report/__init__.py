"""What people look at without a tool: the page of figures, and the figures that the UI plots."""
