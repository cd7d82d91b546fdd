"""Tendons: how long they are, how their length changes, what they pull on."""
