"""The local launcher: jobs on this machine, or on the hosts of a hostfile."""
