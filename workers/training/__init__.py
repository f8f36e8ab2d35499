"""The one loop of steps, its objectives and optimisers, and the evaluation of networks."""
