"""Domain types and shared helpers: catalog, keys, columns, documents, text and errors."""
