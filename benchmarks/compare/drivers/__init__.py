"""One file per client. They run in the client's own environment, so they import nothing else of this project."""
