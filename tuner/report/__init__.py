"""Pictures of what the product answers; the only importer of matplotlib."""
