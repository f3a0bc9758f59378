"""What one framework provides to a driver: ``protocol`` says what, every other module is one framework."""
