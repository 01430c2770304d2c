"""What leaves for production: the files that a chosen topology runs with."""
