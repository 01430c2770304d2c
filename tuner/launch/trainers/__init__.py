"""The user's own command in its trainer's words: `--trainer NAME`, one module for each family of trainers."""
