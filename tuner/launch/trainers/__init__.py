"""The flags of the user's trainer for a topology: `--trainer NAME`, with one module per family of trainers."""
