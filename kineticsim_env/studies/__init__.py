"""Studies of markets: statistics, pictures, and the measurements behind the presets for learners."""
