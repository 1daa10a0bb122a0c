"""Problems and figures, and how people are told of them."""
