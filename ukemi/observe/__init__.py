"""What can be read off a state: frames, and the sensors of the file."""
