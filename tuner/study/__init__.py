"""The loop: propose, launch, watch, prune or measure, tell, learn."""
