"""Search: candidates, surrogate, acquisition and samplers."""
