"""The cost of a topology, by arithmetic over columns: pure, vectorised, each constant with its source."""
