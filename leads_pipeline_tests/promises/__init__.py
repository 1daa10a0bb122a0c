"""The promises to users, tested from outside: by commands, HTTP, files and DuckDB."""
