"""The loop: propose, launch, watch, prune or measure, store, update."""
