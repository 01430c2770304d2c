"""The Slurm launchers: jobs in allocations of their own, or as steps of one allocation."""
