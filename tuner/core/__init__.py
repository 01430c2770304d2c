"""Domain types and what every other package needs: catalog, keys, columns, documents, text, errors."""
