"""What a topology costs, by arithmetic over columns: pure, vectorised, each constant with its source."""
