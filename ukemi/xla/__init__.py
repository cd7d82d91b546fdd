"""What knows the compiler, and no physics."""
