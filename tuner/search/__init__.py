"""The search: what may be chosen, what is believed of it, what is tried next, and the study that keeps it all."""
