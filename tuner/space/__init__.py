"""The search space: axes, rules, legal topologies, and remedies for illegal ones."""
