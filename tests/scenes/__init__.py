"""What tests share: scenes, robots, random states and what is asked of them; imported as `tests.scenes`."""
