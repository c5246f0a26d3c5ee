"""What is measured rather than tested: speed (`make benchmark`) and accuracy on real photographs."""
