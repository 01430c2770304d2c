"""What a study has found, for people: sentences, tables, plots. Rows are computed apart from what draws them."""
