"""Reports of a study: sentences, tables, plots. Rows are computed separately from drawing."""
