"""Production files for a measured topology: configs, launch scripts and the expected performance."""
