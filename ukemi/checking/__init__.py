"""Whether derivatives are right: a step's beside differences."""
