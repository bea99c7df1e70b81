"""Studies of markets: statistics, pictures, and the measurement behind the preset `"trading"`."""
