"""The environments: Gymnasium's and PettingZoo's interfaces over one core, which steps thousands of markets at once."""
